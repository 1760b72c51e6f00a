//! A link between a hub and one or more terminals: one forward direction, one return direction a terminal.

use crate::agenda::Agenda;
use crate::bill::{Bill, Meter};
use crate::circuit::{Circuit, CircuitEvent};
use crate::config::{DirectionConfig, LinkConfig};
use crate::direction::Direction;
use crate::impairment::{Impairment, LossProcess};
use crate::jitter::Jitter;
use crate::medium::{Medium, MediumConfig};
use crate::node::{Node, Port};
use crate::noise::{NoiseProcess, RatioSchedule};
use crate::queue::{Queue, QueueConfig};
use crate::transmitter::Transmitter;
use bentpipe_net::packet::Packet;
use bentpipe_net::seed::{Seed, Stream};
use bentpipe_net::time::Instant;

/// A whole link. Port 0 is the hub, ports 1 and up the terminals; packets that enter at the hub reach every terminal.
#[derive(Debug)]
pub struct Link<P> {
    /// Forward first, then the return of each terminal.
    directions: Vec<Direction<P>>,
    circuit: Option<Circuit>,
    /// On a link with a tariff.
    meter: Option<Meter>,
    /// The next event of each direction.
    events: Agenda,
    /// The first of them: its direction, and when.
    next: (usize, Instant),
    /// When each direction must be advanced.
    work: Agenda,
    /// Nothing must be advanced before this: the start of time on a link with a circuit, which is always worked on.
    quiet_until: Instant,
}

impl<P: Packet> Link<P> {
    /// Builds the link for `terminals` terminals; its random streams come from `seed`.
    #[must_use]
    pub fn new(config: &LinkConfig, terminals: usize, seed: Seed) -> Self {
        let circuit = config.circuit.clone().map(|circuit| Circuit::new(circuit, seed.stream("circuit")));
        let direction = |direction: &DirectionConfig, name: &str, receivers: usize| {
            let media = (0..receivers)
                .map(|i| {
                    let stream = |what: &str| seed.stream(&format!("{name}/{what}/{i}"));
                    let MediumConfig { one_way_delay, deliver_damaged, .. } = direction.medium;
                    Medium::new(one_way_delay, deliver_damaged, impairments(direction, stream))
                })
                .collect();
            let queue = match &direction.queue {
                QueueConfig::Fifo(limit) => Queue::fifo(*limit),
                QueueConfig::Discipline(spec) => {
                    Queue::discipline(spec.build(seed.stream(&format!("{name}/queue"))), config.carries_ethernet)
                }
            };
            let transmitter = Transmitter::new(direction.rate.clone(), direction.channels);
            let open = circuit.is_none();
            Direction::new(queue, direction.framing, config.carries_ethernet, transmitter, media, open)
        };
        let mut directions = vec![direction(&config.forward, "forward", terminals)];
        directions.extend((0..terminals).map(|i| direction(&config.back, &format!("return{i}"), 1)));
        let none = Agenda::new(directions.len());
        let (events, work) = (none.clone(), none);
        let meter = config.tariff.clone().map(|tariff| Meter::new(tariff, config.carries_ethernet));
        Link { directions, circuit, meter, events, next: (0, Instant::FAR), work, quiet_until: Instant::ZERO }
    }

    /// Forward first, then the return of each terminal.
    #[must_use]
    pub fn directions(&self) -> &[Direction<P>] {
        &self.directions
    }

    /// The same, to change a queue while the link runs: see [`Direction::discipline_mut`].
    pub fn directions_mut(&mut self) -> &mut [Direction<P>] {
        &mut self.directions
    }

    /// The circuit, on a link that must be set up.
    #[must_use]
    pub fn circuit(&self) -> Option<&Circuit> {
        self.circuit.as_ref()
    }

    /// Its circuit, if it has one, is set up and ended by [`Link::dial`] and [`Link::hang_up`] only.
    pub fn set_commanded(&mut self) {
        if let Some(circuit) = &mut self.circuit {
            circuit.set_commanded();
        }
    }

    /// Sets the circuit up, unless it is up or being set up.
    pub fn dial(&mut self, now: Instant) {
        self.advance_all(now);
        if let Some(circuit) = &mut self.circuit {
            circuit.dial(now);
        }
        self.advance_all(now);
    }

    /// Ends the circuit's calls. What is being sent is lost; what waits, waits for the next call; what comes while the line
    /// is down is dropped.
    pub fn hang_up(&mut self, now: Instant) {
        self.advance_all(now);
        let carried = self.carried();
        let Some(circuit) = &mut self.circuit else { return };
        circuit.set_carried(carried);
        circuit.hang_up(now);
        if let Some(meter) = &mut self.meter {
            meter.assign(circuit);
        }
        self.directions.iter_mut().for_each(Direction::drop_calls);
        self.note_all();
    }

    /// The bill of its use up to `now`, if it has a tariff. Packets sent are counted as of the last wake.
    #[must_use]
    pub fn bill(&self, now: Instant) -> Option<Bill> {
        Some(self.meter.as_ref()?.bill(now, self.circuit.as_ref(), self.carried()))
    }

    /// Bytes sent so far, forward and return, framing not included.
    fn carried(&self) -> [u64; 2] {
        let sent = |direction: &Direction<P>| direction.sender_counters().sent_bytes;
        [sent(&self.directions[0]), self.directions[1..].iter().map(sent).sum()]
    }

    /// Takes note of what all directions do next.
    fn note_all(&mut self) {
        for (number, direction) in self.directions.iter().enumerate() {
            self.events.set(number, direction.next_wake());
            self.work.set(number, direction.must_advance());
        }
        self.next = self.events.first();
        if self.circuit.is_none() {
            self.quiet_until = self.work.first().1;
        }
    }

    /// As [`Node::wake`], but for the counters: those are as of the last wake, at least.
    #[inline(always)]
    fn catch_up(&mut self, now: Instant) {
        if now >= self.quiet_until {
            self.advance_due(now);
        }
    }

    /// Advances the directions that must be.
    #[inline(never)]
    fn advance_due(&mut self, now: Instant) {
        if self.circuit.is_some() {
            self.advance_all(now);
            return;
        }
        loop {
            let (number, at) = self.work.first();
            self.quiet_until = at;
            if at > now {
                break;
            }
            let direction = &mut self.directions[number];
            direction.advance(now);
            self.work.set(number, direction.must_advance());
            self.events.set(number, direction.next_wake());
        }
        self.next = self.events.first();
    }

    fn advance_all(&mut self, now: Instant) {
        if self.circuit.is_some() {
            self.wake_with_circuit(now);
        } else {
            for direction in &mut self.directions {
                direction.advance(now);
            }
        }
        self.note_all();
    }

    /// [`Node::wake`] and [`Node::poll_transmit`] in one, for drivers that want no counters in between: those are as of the
    /// last wake, at least.
    #[inline]
    pub fn next_arrival(&mut self, now: Instant) -> Option<(Port, P)> {
        self.catch_up(now);
        self.poll_transmit(now)
    }

    fn is_sending(&self) -> bool {
        self.directions.iter().any(Direction::is_sending)
    }

    /// Runs the circuit up to `now`: its events open, close and cut the directions, at their own times.
    fn advance_circuit(&mut self, now: Instant) {
        let (sending, carried) = (self.is_sending(), self.carried());
        let Some(circuit) = self.circuit.as_mut() else { return };
        circuit.set_carried(carried);
        let noises: Vec<&RatioSchedule> =
            self.directions.iter().flat_map(|d| d.media().iter().flat_map(Medium::error_ratios)).collect();
        let Some((at, event)) = circuit.wake(now, sending, &noises) else { return };
        if let Some(meter) = &mut self.meter {
            meter.assign(circuit);
        }
        match event {
            CircuitEvent::Up => {
                self.poll_load(at);
                self.open_channels(at);
            }
            CircuitEvent::HungUp => self.open_channels(at),
            CircuitEvent::Lost => {
                self.directions.iter_mut().for_each(Direction::drop_calls);
                if self.directions.iter().any(Direction::is_waiting)
                    && let Some(circuit) = self.circuit.as_mut()
                {
                    circuit.want(at);
                }
            }
            CircuitEvent::LoadCheck => {
                if self.poll_load(at) {
                    self.open_channels(at);
                }
            }
        }
    }

    /// Leaves as many channels open as there are calls.
    fn open_channels(&mut self, now: Instant) {
        let Some(circuit) = &self.circuit else { return };
        let (channels, carries_from) = (circuit.channels_up(), circuit.carries_from());
        self.directions.iter_mut().for_each(|direction| direction.open(now, channels, carries_from));
    }

    /// Lets the circuit see what its calls carry; returns whether it dropped one.
    fn poll_load(&mut self, now: Instant) -> bool {
        let airtime: Vec<u64> = self.directions.iter().map(|direction| direction.airtime(now)).collect();
        self.circuit.as_mut().is_some_and(|circuit| circuit.poll(now, &airtime))
    }

    fn wake_with_circuit(&mut self, now: Instant) {
        loop {
            // In the order of time: transmissions up to the circuit's next event, then that event.
            let circuit_due = self.circuit_wake();
            let until = circuit_due.min(now);
            let mut touched = false;
            for direction in &mut self.directions {
                if let Some(end) = direction.advance(until)
                    && let Some(circuit) = self.circuit.as_mut()
                {
                    circuit.touch(end);
                    touched = true;
                }
            }
            if circuit_due <= now {
                self.advance_circuit(circuit_due);
            } else if !touched {
                return;
            }
            // The last transmission may have ended so long ago that the circuit has hung up since.
        }
    }

    /// When something may happen to the circuit: when it hangs up depends on the last transmission.
    #[cold]
    fn circuit_event(&self) -> Instant {
        self.directions.iter().map(Direction::next_end).fold(self.circuit_wake(), Instant::min)
    }

    fn circuit_wake(&self) -> Instant {
        self.circuit.as_ref().map_or(Instant::FAR, |circuit| circuit.next_wake(self.is_sending()))
    }
}

impl<P: Packet> Node<P> for Link<P> {
    #[inline]
    fn receive(&mut self, now: Instant, port: Port, packet: P) {
        self.catch_up(now);
        if self.circuit.as_ref().is_some_and(Circuit::is_closed) {
            // There is no route over a line that is down.
            if let Some(direction) = self.directions.get_mut(port.0) {
                direction.refuse(&packet);
            }
            return;
        }
        let Some(direction) = self.directions.get_mut(port.0) else {
            debug_assert!(false, "a link with {} ports has no port {}", self.directions.len(), port.0);
            return;
        };
        if let Some(meter) = &mut self.meter {
            meter.offer(usize::from(port.0 > 0), &packet);
        }
        direction.offer(now, packet);
        // Whatever was to happen before this packet still happens then.
        let next = direction.next_wake();
        self.events.set(port.0, next);
        if next < self.next.1 {
            self.next = (port.0, next);
        }
        let must_advance = direction.must_advance();
        if must_advance != Instant::FAR {
            self.work.set(port.0, must_advance);
            self.quiet_until = self.quiet_until.min(must_advance);
        }
        if let Some(circuit) = self.circuit.as_mut() {
            circuit.want(now);
            if circuit.is_unwatched() {
                self.poll_load(now);
            }
            self.wake(now);
        }
    }

    fn wake(&mut self, now: Instant) {
        self.advance_all(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Instant) -> Option<(Port, P)> {
        let (number, at) = self.next;
        if at > now {
            return None;
        }
        let direction = &mut self.directions[number];
        let (receiver, packet) = direction.deliver(now)?;
        self.events.set(number, direction.next_wake());
        self.next = self.events.first();
        Some((Port(if number == 0 { receiver + 1 } else { 0 }), packet))
    }

    #[inline]
    fn next_wake(&self) -> Instant {
        if self.circuit.is_some() { self.next.1.min(self.circuit_event()) } else { self.next.1 }
    }
}

/// What happens to packets on the path to one receiver, in this order.
fn impairments(config: &DirectionConfig, stream: impl Fn(&str) -> Stream) -> Vec<Box<dyn Impairment>> {
    let mut chain: Vec<Box<dyn Impairment>> = Vec::new();
    if let Some(loss) = config.medium.loss.filter(|loss| loss.share > 0.0) {
        chain.push(Box::new(LossProcess::new(loss, stream("loss"))));
    }
    chain.extend(config.medium.outages.iter().map(|outage| Box::new(*outage) as Box<dyn Impairment>));
    if !config.noise.is_silent() {
        chain.push(Box::new(NoiseProcess::new(config.noise.clone(), stream("noise"))));
    }
    if let Some(jitter) = &config.medium.jitter {
        chain.push(Box::new(Jitter::new(jitter.clone(), stream("jitter"))));
    }
    for (number, spec) in config.impairments.iter().enumerate() {
        // Counted among those of its kind: another kind in between shifts no stream.
        let same = config.impairments[..number].iter().filter(|other| other.kind() == spec.kind()).count();
        chain.push(spec.build(stream(&format!("impairments/{}.{same}", spec.kind()))));
    }
    chain
}
