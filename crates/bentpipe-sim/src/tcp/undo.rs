//! Taking a reduction of the window back that turns out to have been needless (RFC 3522, 3708, 5682).

use super::congestion::Phase;
use super::output::clock;
use super::{Connection, Repair};
use bentpipe_net::time::Instant;

impl Connection {
    /// The time-out turns out to have been too early.
    pub(super) fn undo_loss(&mut self, surely: bool, now: Instant) -> bool {
        if self.undo.marker.is_none() || !(surely || self.was_needless()) {
            return false;
        }
        self.take_back();
        self.board.forget_losses();
        if surely {
            self.retransmissions = 0;
        }
        if surely || self.sack {
            self.repair = Repair::Open;
            self.control.phase(now, Phase::Open, &mut self.window);
            self.frto = false;
        }
        true
    }

    /// All retransmissions were needless: told by duplicates (RFC 3708), or by a timestamp echo from before the first of
    /// them (Eifel, RFC 3522).
    fn was_needless(&self) -> bool {
        let delayed = match (self.echo, self.undo.since) {
            (Some(echo), Some(since)) => (echo.wrapping_sub(clock(since)) as i32) < 0,
            _ => false,
        };
        delayed || (self.undo.retransmissions == 0 && self.undo.since.is_some())
    }

    /// At the end of a recovery; whether its reduction was taken back.
    pub(super) fn try_undo(&mut self) -> bool {
        let undone = self.undo.marker.is_some() && self.was_needless();
        if undone {
            self.take_back();
        } else {
            self.rack.persist = self.rack.persist.saturating_sub(1);
        }
        self.undo.marker = None;
        undone
    }

    pub(super) fn try_undo_by_duplicates(&mut self, now: Instant) {
        if self.undo.marker.is_some() && self.undo.retransmissions == 0 && self.undo.since.is_some() {
            self.take_back();
            if self.repair > Repair::Disorder {
                self.repair = Repair::Open;
                self.control.phase(now, Phase::Open, &mut self.window);
            }
        }
    }

    fn take_back(&mut self) {
        self.window.cwnd = self.control.undo(&self.window, self.undo.window);
        if self.undo.ssthresh > self.window.ssthresh {
            self.window.ssthresh = self.undo.ssthresh;
        }
        self.undo.marker = None;
    }
}
