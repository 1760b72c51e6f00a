//! Streaming compression of one direction of one connection (zstd, RFC 8878), switched off where it does not help.
//!
//! Each connection and direction has a context of its own, so that nothing one client sends can be guessed from how well
//! another's data compress. Contexts are bounded: the receiver says in its first frame whether it keeps room for one.

use crate::relay::frame::{DATA_MAX, Malformed, PACKED_MAX, put_varint, take_varint};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// The history of a context: 64 kB (2^16). Twice that gains 2 % on web pages and text and costs twice the memory.
const WINDOW_LOG: u32 = 16;
/// zstd's own default.
const LEVEL: i32 = 3;
/// Entries of the match finder's two tables, 2^14 each: what a window of 64 kB fills.
const TABLE_LOG: u32 = 14;
/// Most memory of a compressing context; a test checks it.
pub(crate) const PACKER_BYTES: u64 = 640 << 10;
/// Most memory of a decompressing context; a test checks it.
pub(crate) const UNPACKER_BYTES: u64 = 384 << 10;

/// Chunks below this go uncompressed: the frame would be longer.
const LEAST: usize = 32;
/// A trial that saves less than an eighth is not worth the time at both ends.
const WORTH: (usize, usize) = (7, 8);
/// Bytes over which a running context proves its worth.
const JUDGED_OVER: u64 = 64 << 10;
/// Bytes that pass uncompressed before the next trial after one that failed; each further one waits twice as long.
const PAUSE: u64 = 256 << 10;
const PAUSE_MAX: u64 = 64 << 20;
/// Bytes that a trial looks at.
const TRIAL: usize = 4096;

/// The decision of [`Packer::pack`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packed {
    /// The payload of a packed frame was appended.
    Yes,
    /// This chunk goes as it is.
    No,
    /// So does this one and all to come: the receiver may forget its context.
    Never,
}

/// One direction's compression.
pub(crate) struct Packer {
    context: Option<CCtx<'static>>,
    /// The next frame starts a new context.
    fresh: bool,
    seen_any: bool,
    /// Bytes that still pass before the next trial.
    pause: u64,
    next_pause: u64,
    /// Since the context was last judged.
    from: u64,
    to: u64,
}

impl Packer {
    pub(crate) fn new() -> Packer {
        Packer { context: None, fresh: true, seen_any: false, pause: 0, next_pause: PAUSE, from: 0, to: 0 }
    }

    /// True if it holds memory for a context.
    pub(crate) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// Appends `plain` (at most [`DATA_MAX`] bytes) compressed, as the payload of a packed frame, or leaves `into` as it
    /// is. `room`: another context may be made.
    pub(crate) fn pack(&mut self, plain: &[u8], room: bool, trial: &mut Trial, into: &mut Vec<u8>) -> Packed {
        if !std::mem::replace(&mut self.seen_any, true) && is_tls(plain) {
            return Packed::Never;
        }
        if plain.len() < LEAST {
            return Packed::No;
        }
        if self.context.is_none() {
            if self.pause > 0 {
                self.pause = self.pause.saturating_sub(plain.len() as u64);
                return Packed::No;
            }
            if !room {
                return Packed::No;
            }
            if !trial.is_worth_it(&plain[..plain.len().min(TRIAL)]) {
                self.give_up_for_now();
                return Packed::No;
            }
            self.context = new_packer();
            self.fresh = true;
        }
        let Some(context) = &mut self.context else { return Packed::No };
        let start = into.len();
        put_varint((plain.len() as u32) << 1 | u32::from(self.fresh), into);
        if !compress(context, plain, into) || into.len() - start > PACKED_MAX {
            into.truncate(start);
            self.give_up_for_now();
            return Packed::No;
        }
        self.fresh = false;
        self.from += plain.len() as u64;
        self.to += (into.len() - start) as u64;
        if self.from >= JUDGED_OVER {
            let worth = self.to * WORTH.1 as u64 <= self.from * WORTH.0 as u64;
            (self.from, self.to) = (0, 0);
            if worth {
                self.next_pause = PAUSE;
            } else {
                self.give_up_for_now();
            }
        }
        Packed::Yes
    }

    fn give_up_for_now(&mut self) {
        self.context = None;
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
        (self.from, self.to) = (0, 0);
    }
}

/// True if a connection starts as TLS does: a handshake record (RFC 8446 §5.1). Its hello may shrink, the rest never does.
fn is_tls(first: &[u8]) -> bool {
    matches!(first, [0x16, 0x03, 0..=4, ..])
}

/// A context that only tries; one serves all connections, and keeps nothing from one trial to the next.
pub(crate) struct Trial {
    context: Option<CCtx<'static>>,
    output: Vec<u8>,
}

impl Trial {
    pub(crate) fn new() -> Trial {
        Trial { context: None, output: Vec::new() }
    }

    fn is_worth_it(&mut self, sample: &[u8]) -> bool {
        if self.context.is_none() {
            self.context = new_packer();
        }
        let Some(context) = &mut self.context else { return false };
        if context.reset(ResetDirective::SessionOnly).is_err() {
            return false;
        }
        self.output.clear();
        compress(context, sample, &mut self.output) && self.output.len() * WORTH.1 <= sample.len() * WORTH.0
    }
}

fn new_packer() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    for parameter in [
        CParameter::CompressionLevel(LEVEL),
        CParameter::WindowLog(WINDOW_LOG),
        CParameter::HashLog(TABLE_LOG),
        CParameter::ChainLog(TABLE_LOG),
        CParameter::ContentSizeFlag(false),
    ] {
        context.set_parameter(parameter).ok()?;
    }
    Some(context)
}

/// Appends all of `plain`, flushed, so that the receiver can unpack it at once.
fn compress(context: &mut CCtx<'static>, plain: &[u8], into: &mut Vec<u8>) -> bool {
    let start = into.len();
    into.resize(start + PACKED_MAX, 0);
    let mut input = InBuffer::around(plain);
    let mut output = OutBuffer::around(&mut into[start..]);
    loop {
        match context.compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_flush) {
            Ok(0) => {
                let length = output.pos();
                into.truncate(start + length);
                return true;
            }
            Ok(_) if output.pos() < output.capacity() => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

/// The other side of a [`Packer`].
pub(crate) struct Unpacker {
    context: Option<DCtx<'static>>,
}

impl Unpacker {
    pub(crate) fn new() -> Unpacker {
        Unpacker { context: None }
    }

    /// Appends what the payload of a packed frame stands for: exactly as much as the frame says, never more than
    /// [`DATA_MAX`].
    pub(crate) fn unpack(&mut self, payload: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
        let (number, own) = take_varint(payload)?.ok_or(Malformed("a packed frame without a length"))?;
        let length = (number >> 1) as usize;
        if !(1..=DATA_MAX).contains(&length) {
            return Err(Malformed("a packed frame of more than 16384 bytes"));
        }
        if number & 1 == 1 {
            match &mut self.context {
                Some(context) => {
                    context.reset(ResetDirective::SessionOnly).map_err(|_| Malformed("a context that cannot start"))?;
                }
                None => self.context = new_unpacker(),
            }
        }
        let context = self.context.as_mut().ok_or(Malformed("a packed frame without a context"))?;
        let start = into.len();
        // One byte more than was announced, so that too long a frame is seen.
        into.resize(start + length + 1, 0);
        let mut input = InBuffer::around(&payload[own..]);
        let mut output = OutBuffer::around(&mut into[start..]);
        loop {
            let before = (input.pos(), output.pos());
            context
                .decompress_stream(&mut output, &mut input)
                .map_err(|_| Malformed("a packed frame that is not zstd"))?;
            if output.pos() > length {
                return Err(Malformed("a packed frame longer than it says"));
            }
            if input.pos() == input.src.len() && output.pos() == length {
                into.truncate(start + length);
                return Ok(());
            }
            if before == (input.pos(), output.pos()) {
                return Err(Malformed("a packed frame shorter than it says"));
            }
        }
    }
}

fn new_unpacker() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
    Some(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::socket::fill_pattern;
    use proptest::prelude::*;

    fn text(bytes: usize) -> Vec<u8> {
        let mut text = Vec::new();
        let mut n = 0_u64;
        while text.len() < bytes {
            text.extend_from_slice(
                format!("<tr><td class=\"name\">station {n}</td><td>{}</td></tr>\n", n * n).as_bytes(),
            );
            n += 1;
        }
        text.truncate(bytes);
        text
    }

    #[test]
    fn text_shrinks_and_comes_back_frame_by_frame() {
        let (mut packer, mut unpacker, mut trial) = (Packer::new(), Unpacker::new(), Trial::new());
        let plain = text(300_000);
        let (mut packed, mut back) = (0, Vec::new());
        for chunk in plain.chunks(DATA_MAX) {
            let mut frame = Vec::new();
            assert_eq!(packer.pack(chunk, true, &mut trial, &mut frame), Packed::Yes);
            packed += frame.len();
            unpacker.unpack(&frame, &mut back).unwrap();
        }
        assert_eq!(back, plain);
        assert!(packed * 4 < plain.len(), "{packed} of {}", plain.len());
        let sizes = (packer.context.unwrap().sizeof() as u64, unpacker.context.unwrap().sizeof() as u64);
        assert!(sizes.0 <= PACKER_BYTES && sizes.1 <= UNPACKER_BYTES, "{sizes:?}");
    }

    #[test]
    fn what_does_not_shrink_is_tried_again_ever_more_seldom() {
        let (mut packer, mut trial) = (Packer::new(), Trial::new());
        let mut noise = vec![0; 32 << 20];
        fill_pattern(1, 0, &mut noise);
        let mut frame = Vec::new();
        let mut trials = Vec::new();
        for (i, chunk) in noise.chunks(DATA_MAX).enumerate() {
            let before = packer.next_pause;
            assert_eq!(packer.pack(chunk, true, &mut trial, &mut frame), Packed::No);
            if packer.next_pause != before {
                trials.push(i);
            }
        }
        assert_eq!(trials, [0, 17, 50, 115, 244, 501, 1014, 2039]);
        assert!(frame.is_empty() && !packer.has_context());
        // A stream that turns into text is found out at the next trial.
        packer.pause = 0;
        assert_eq!(packer.pack(&text(4000), true, &mut trial, &mut frame), Packed::Yes);
    }

    #[test]
    fn a_context_that_stops_helping_goes_and_a_new_one_is_understood() {
        let (mut packer, mut unpacker, mut trial) = (Packer::new(), Unpacker::new(), Trial::new());
        let mut back = Vec::new();
        let mut all = Vec::new();
        let mut noise = vec![0; 512 << 10];
        fill_pattern(2, 0, &mut noise);
        all.extend_from_slice(&text(50_000));
        all.extend_from_slice(&noise);
        all.extend_from_slice(&text(500_000));
        let mut kinds = Vec::new();
        for chunk in all.chunks(10_000) {
            let mut frame = Vec::new();
            match packer.pack(chunk, true, &mut trial, &mut frame) {
                Packed::Yes => unpacker.unpack(&frame, &mut back).unwrap(),
                Packed::No => back.extend_from_slice(chunk),
                Packed::Never => panic!("not TLS"),
            }
            kinds.push(!frame.is_empty());
        }
        assert_eq!(back, all);
        kinds.dedup();
        assert_eq!(kinds, [true, false, true]);
    }

    #[test]
    fn tls_is_left_alone() {
        let (mut packer, mut trial) = (Packer::new(), Trial::new());
        let mut hello = vec![0x16, 3, 1, 2, 0, 1];
        hello.resize(517, 0);
        assert_eq!(packer.pack(&hello, true, &mut trial, &mut Vec::new()), Packed::Never);
    }

    #[test]
    fn a_bomb_is_refused_before_it_unfolds() {
        // A megabyte of zeros in a few bytes, announced as 100.
        let mut context = CCtx::create();
        let mut bomb = Vec::new();
        put_varint(100 << 1 | 1, &mut bomb);
        let mut packed = vec![0; 4096];
        let length = context.compress2(&mut packed[..], &vec![0; 1 << 20]).unwrap();
        bomb.extend_from_slice(&packed[..length]);
        let mut into = Vec::new();
        assert!(Unpacker::new().unpack(&bomb, &mut into).is_err());
        assert!(into.capacity() < 4096);
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_unpacker_panic_or_swell(
            payload in proptest::collection::vec(any::<u8>(), 0..400), at in 0_usize..400, flip: u8,
        ) {
            let mut into = Vec::new();
            let _ = Unpacker::new().unpack(&payload, &mut into);
            // And one that is nearly right.
            let (mut packer, mut trial, mut frame) = (Packer::new(), Trial::new(), Vec::new());
            packer.pack(&text(3000), true, &mut trial, &mut frame);
            let at = at % frame.len();
            frame[at] ^= flip;
            let mut into = Vec::new();
            let _ = Unpacker::new().unpack(&frame, &mut into);
            prop_assert!(into.len() <= DATA_MAX + 1);
        }
    }
}
