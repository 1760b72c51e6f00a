//! Real packets, of live runs: bytes in buffers that are used again.

use crate::headers::{self, Headers};
use crate::packet::Packet;
use parking_lot::Mutex;
use std::sync::Arc;

/// A packet of real bytes, whose storage goes back to its [`Pool`] when dropped.
#[derive(Debug)]
pub struct Buffer {
    /// Taken only by [`Drop`].
    storage: Option<Box<Storage>>,
    /// Bytes of the packet, headroom not included: asked for more often than the bytes.
    length: u32,
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

/// Buffers, boxed as they travel.
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

fn lock(free: &Mutex<Free>) -> parking_lot::MutexGuard<'_, Free> {
    free.lock()
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
        Buffer::of(self)
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
        Buffer::of(storage)
    }

    fn of(storage: Box<Storage>) -> Buffer {
        Buffer { length: (storage.length - storage.headroom) as u32, storage: Some(storage) }
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

impl Packet for Buffer {
    #[inline]
    fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    fn for_each_byte(&self, visit: impl FnMut(u8)) {
        self.as_slice().iter().copied().for_each(visit);
    }

    fn invert_bit(&mut self, bit: u64) {
        self.as_mut_slice()[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
    }

    fn headers(&self, ethernet: bool) -> Option<Headers> {
        Headers::read(self.as_slice(), ethernet)
    }

    fn mark_congestion(&mut self, ethernet: bool) -> bool {
        headers::mark_congestion(self.as_mut_slice(), ethernet)
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
        let framed = pool.copy_of(b"abcdef", 2);
        assert_eq!((framed.bytes(), framed.clone().as_slice()), (4, &b"cdef"[..]));
    }

    #[test]
    fn bits_count_from_the_most_significant() {
        let mut packet = Buffer::from_vec(vec![0, 0]);
        packet.invert_bit(0);
        packet.invert_bit(15);
        let mut bytes = vec![];
        packet.for_each_byte(|b| bytes.push(b));
        assert_eq!(bytes, [0x80, 0x01]);
    }
}
