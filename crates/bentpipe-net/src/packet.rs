//! Packets and the buffers they live in.
//!
//! A packet's content is real bytes in a pooled buffer (live runs) or a description of them (virtual runs, where 75 MB in
//! flight must not cost 75 MB). Bit errors can damage either.

use crate::content::pattern_byte;
use crate::datagram::Datagram;
use crate::wire;
use std::sync::{Arc, Mutex, PoisonError};

/// What crosses a link: an IP packet, or an Ethernet frame on a link that carries Ethernet (without its check sequence).
#[derive(Debug, Clone)]
pub struct Packet {
    /// A number for traces; given by whoever makes the packet.
    pub id: u64,
    /// What it holds.
    pub content: Content,
    /// Length in bytes; what happens to the content does not change it.
    length: u32,
}

/// The bytes of a packet.
#[derive(Debug, Clone)]
pub enum Content {
    /// Real bytes.
    Bytes(Buffer),
    /// Bytes that are a function of their offset; apart, so that a packet is short wherever it waits.
    Pattern(Box<Pattern>),
    /// What a simulated host sent; apart, so that a packet is short wherever it waits.
    Datagram(Box<Datagram>),
    /// The same with bit errors.
    Damaged(Box<Damaged>),
}

/// What a simulated host sent, some bits of which have been inverted.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// As it was sent.
    pub datagram: Box<Datagram>,
    /// Inverted bits, as in a [`Pattern`].
    pub inverted: Vec<u64>,
}

/// `length` bytes of a pattern (see [`crate::content::pattern_byte`]), some bits of which may have been inverted.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Which pattern.
    pub pattern: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Inverted bits, counted from the first bit of the packet, most significant bit of a byte first.
    pub inverted: Vec<u64>,
}

impl Packet {
    /// A packet of real bytes.
    #[must_use]
    pub fn from_buffer(id: u64, buffer: Buffer) -> Self {
        let length = buffer.as_slice().len() as u32;
        Packet { id, content: Content::Bytes(buffer), length }
    }

    /// A packet whose bytes are a function of their offset.
    #[must_use]
    pub fn from_pattern(id: u64, pattern: u64, offset: u64, length: u32) -> Self {
        let content = Content::Pattern(Box::new(Pattern { pattern, offset, length, inverted: Vec::new() }));
        Packet { id, content, length }
    }

    /// A packet of a simulated host.
    #[must_use]
    #[inline]
    pub fn from_datagram(id: u64, datagram: impl Into<Box<Datagram>>) -> Self {
        let datagram = datagram.into();
        let length = datagram.bytes();
        Packet::of_length(id, datagram, length)
    }

    /// The same of a datagram whose length ([`Datagram::bytes`]) is known.
    #[must_use]
    #[inline]
    pub fn of_length(id: u64, datagram: Box<Datagram>, length: u64) -> Self {
        debug_assert_eq!(length, datagram.bytes());
        Packet { id, content: Content::Datagram(datagram), length: length as u32 }
    }

    /// What a simulated host sent, and the bits of it that have been inverted since.
    #[must_use]
    pub fn datagram(&self) -> Option<(&Datagram, &[u64])> {
        match &self.content {
            Content::Datagram(datagram) => Some((datagram, &[])),
            Content::Damaged(damaged) => Some((&damaged.datagram, &damaged.inverted)),
            Content::Bytes(_) | Content::Pattern(_) => None,
        }
    }

    /// What the receiving host makes of the packet; `None`: damaged so that a checksum shows it, or not a datagram.
    #[must_use]
    #[inline]
    pub fn into_datagram(self) -> Option<Box<Datagram>> {
        match self.content {
            Content::Datagram(datagram) => Some(datagram),
            Content::Damaged(damaged) => parse_damaged(&damaged.datagram, &damaged.inverted).map(Box::new),
            Content::Bytes(_) | Content::Pattern(_) => None,
        }
    }

    /// Length in bytes, framing not included.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    /// Asks the processor to bring the datagram close: between its sending and its arrival, tens of thousands of others
    /// may pass.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        if let Content::Datagram(datagram) = &self.content {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = std::ptr::from_ref::<Datagram>(datagram).cast::<i8>();
            // It begins anywhere in a cache line, so it may end in a third one.
            // SAFETY: a hint, which reads nothing; all addresses are inside the datagram.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(start);
                _mm_prefetch::<_MM_HINT_T0>(start.add(64));
                _mm_prefetch::<_MM_HINT_T0>(start.add(size_of::<Datagram>() - 1));
            }
        }
    }

    /// Calls `visit` with each byte in order. For framings whose length depends on what they carry.
    pub fn for_each_byte(&self, mut visit: impl FnMut(u8)) {
        match &self.content {
            Content::Bytes(buffer) => buffer.as_slice().iter().for_each(|b| visit(*b)),
            Content::Pattern(content) => {
                let Pattern { pattern, offset, length, .. } = **content;
                (0..u64::from(length)).for_each(|i| visit(pattern_byte(pattern, offset + i)));
            }
            Content::Datagram(_) | Content::Damaged(_) => {
                let Some((datagram, _)) = self.datagram() else { return };
                let mut bytes = Vec::with_capacity(datagram.bytes() as usize);
                wire::write(datagram, &mut bytes);
                bytes.into_iter().for_each(visit);
            }
        }
    }

    /// Inverts one bit, counted from the packet's first, most significant bit of a byte first.
    pub fn invert_bit(&mut self, bit: u64) {
        debug_assert!(bit < self.bytes() * 8, "bit {bit} is outside the packet");
        match &mut self.content {
            Content::Bytes(buffer) => buffer.as_mut_slice()[(bit / 8) as usize] ^= 0x80 >> (bit % 8),
            Content::Pattern(content) => content.inverted.push(bit),
            Content::Damaged(damaged) => damaged.inverted.push(bit),
            Content::Datagram(_) => {
                let whole = std::mem::replace(&mut self.content, Content::Bytes(Buffer { storage: None }));
                if let Content::Datagram(datagram) = whole {
                    self.content = Content::Damaged(Box::new(Damaged { datagram, inverted: vec![bit] }));
                }
            }
        }
    }
}

/// What a receiver makes of a datagram with these bits inverted.
#[cold]
fn parse_damaged(datagram: &Datagram, inverted: &[u64]) -> Option<Datagram> {
    let mut bytes = Vec::with_capacity(datagram.bytes() as usize);
    wire::write(datagram, &mut bytes);
    inverted.iter().for_each(|bit| bytes[(bit / 8) as usize] ^= 0x80 >> (bit % 8));
    wire::parse(&bytes, datagram.ethernet.is_some())
}

/// A run of bytes whose storage goes back to its [`Pool`] when dropped.
#[derive(Debug)]
pub struct Buffer {
    /// Taken only by [`Drop`].
    storage: Option<Box<Storage>>,
}

/// Apart from the buffer, so that a packet is short wherever it waits.
#[derive(Debug)]
struct Storage {
    bytes: Box<[u8]>,
    /// Bytes before the packet (a header that travels with it outside the model).
    headroom: usize,
    /// Bytes in use, headroom included.
    length: usize,
    /// Where it goes back to; `None` on the shelf itself, and outside any pool.
    home: Option<Arc<Shelf>>,
}

#[derive(Debug)]
struct Shelf {
    free: Mutex<Free>,
}

/// Storages in the boxes in which they travel.
#[allow(clippy::vec_box)]
type Free = Vec<Box<Storage>>;

/// Reusable buffers of one size: after warm-up, taking one allocates nothing.
#[derive(Debug)]
pub struct Pool {
    shelf: Arc<Shelf>,
    buffer_bytes: usize,
    made: usize,
}

/// Buffers made at once when the pool runs dry.
const POOL_GROWTH: usize = 64;

impl Pool {
    /// A pool of buffers of `buffer_bytes`, `ready` of them made (and touched) now.
    #[must_use]
    pub fn new(buffer_bytes: usize, ready: usize) -> Self {
        let mut pool = Pool { shelf: Arc::new(Shelf { free: Mutex::new(Vec::new()) }), buffer_bytes, made: 0 };
        pool.grow(ready);
        pool
    }

    /// The most bytes a buffer of this pool holds.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Buffers made so far, in use or free.
    #[must_use]
    pub fn made(&self) -> usize {
        self.made
    }

    /// A buffer holding a copy of `bytes`, of which the first `headroom` are not part of the packet; an own allocation
    /// if they are longer than the pool's buffers.
    pub fn copy_of(&mut self, bytes: &[u8], headroom: usize) -> Buffer {
        let headroom = headroom.min(bytes.len());
        if bytes.len() > self.buffer_bytes {
            return Buffer::unpooled(bytes.to_vec(), headroom);
        }
        let storage = self.take();
        storage.filled(bytes, headroom, &self.shelf)
    }

    fn take(&mut self) -> Box<Storage> {
        if let Some(storage) = lock(&self.shelf.free).pop() {
            return storage;
        }
        self.grow(POOL_GROWTH);
        lock(&self.shelf.free).pop().unwrap_or_else(|| Storage::new(vec![0; self.buffer_bytes]))
    }

    fn grow(&mut self, count: usize) {
        self.made += count;
        let mut free = lock(&self.shelf.free);
        // Room for every buffer ever made, so that giving one back never allocates.
        let spare = self.made.saturating_sub(free.len());
        free.reserve(spare);
        // Written once with something else than zero, so that the pages are really there.
        free.extend((0..count).map(|_| Storage::new(vec![0xA5; self.buffer_bytes])));
    }
}

fn lock(free: &Mutex<Free>) -> std::sync::MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Storage {
    fn new(bytes: Vec<u8>) -> Box<Storage> {
        let length = bytes.len();
        Box::new(Storage { bytes: bytes.into_boxed_slice(), headroom: 0, length, home: None })
    }

    /// A buffer of this storage that holds a copy of `bytes`.
    fn filled(mut self: Box<Self>, bytes: &[u8], headroom: usize, home: &Arc<Shelf>) -> Buffer {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.headroom = headroom;
        self.length = bytes.len();
        self.home = Some(Arc::clone(home));
        Buffer { storage: Some(self) }
    }
}

impl Buffer {
    /// A buffer outside any pool.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Buffer::unpooled(bytes, 0)
    }

    fn unpooled(bytes: Vec<u8>, headroom: usize) -> Self {
        let mut storage = Storage::new(bytes);
        storage.headroom = headroom;
        Buffer { storage: Some(storage) }
    }

    /// The packet's bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.storage.as_ref().map_or(&[], |storage| &storage.bytes[storage.headroom..storage.length])
    }

    /// The packet's bytes, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.storage.as_mut().map_or(&mut [], |storage| &mut storage.bytes[storage.headroom..storage.length])
    }

    /// The headroom and the packet.
    #[must_use]
    pub fn with_headroom(&self) -> &[u8] {
        self.storage.as_ref().map_or(&[], |storage| &storage.bytes[..storage.length])
    }

    /// The headroom and the packet, to change.
    pub fn with_headroom_mut(&mut self) -> &mut [u8] {
        self.storage.as_mut().map_or(&mut [], |storage| &mut storage.bytes[..storage.length])
    }

    fn headroom(&self) -> usize {
        self.storage.as_ref().map_or(0, |storage| storage.headroom)
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        if let Some(shelf) = self.storage.as_ref().and_then(|storage| storage.home.as_ref())
            && let Some(storage) = lock(&shelf.free).pop()
        {
            return storage.filled(self.with_headroom(), self.headroom(), shelf);
        }
        Buffer::unpooled(self.with_headroom().to_vec(), self.headroom())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(mut storage) = self.storage.take()
            && let Some(shelf) = storage.home.take()
        {
            lock(&shelf.free).push(storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Body;

    #[test]
    fn buffers_go_back_to_their_pool() {
        let mut pool = Pool::new(2048, 1);
        for _ in 0..1000 {
            let buffer = pool.copy_of(b"abc", 0);
            assert_eq!(buffer.as_slice(), b"abc");
        }
        assert_eq!(pool.made(), 1, "one buffer served them all");
        let long = pool.copy_of(&[1; 5000], 0);
        assert_eq!(long.as_slice().len(), 5000);
    }

    #[test]
    fn bits_count_from_the_most_significant() {
        let mut packet = Packet::from_buffer(0, Buffer::from_vec(vec![0, 0]));
        packet.invert_bit(0);
        packet.invert_bit(15);
        let mut bytes = vec![];
        packet.for_each_byte(|b| bytes.push(b));
        assert_eq!(bytes, [0x80, 0x01]);
    }

    #[test]
    fn a_damaged_datagram_is_not_received() {
        let datagram = Datagram {
            ethernet: None,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            ttl: 64,
            traffic_class: 0,
            identification: 0,
            body: Body::Udp { source_port: 1, destination_port: 2, data: vec![0; 100].into() },
        };
        let mut packet = Packet::from_datagram(0, datagram.clone());
        assert_eq!(packet.clone().into_datagram().as_deref(), Some(&datagram));
        packet.invert_bit(1023);
        assert_eq!(packet.clone().into_datagram(), None);
        packet.invert_bit(1023);
        assert_eq!(packet.into_datagram().as_deref(), Some(&datagram), "inverted twice");
    }
}
