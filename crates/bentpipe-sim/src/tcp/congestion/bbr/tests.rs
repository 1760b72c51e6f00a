use super::super::Delivery;
use super::super::toy_path::Pipe;
use super::*;
use bentpipe_net::seed::Seed;

/// 1000 segments a second and 100 ms: a product of 100 segments (and one in service).
fn pipe() -> (Pipe, Bbr) {
    let mut pipe = Pipe::new(Duration::from_millis(1), Duration::from_millis(100));
    let mut bbr = Bbr::new(Seed(1).stream("bbr"));
    bbr.open(pipe.now, &mut pipe.window, Duration::from_millis(101));
    (pipe, bbr)
}

fn until(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

#[test]
fn it_converges_to_the_bandwidth() {
    let (mut pipe, mut bbr) = pipe();
    pipe.run(&mut bbr, until(5_000), |_, _| {});
    let (bandwidth, min_rtt) = (bbr.bandwidth.max().0, bbr.min_rtt.unwrap());
    assert!(bandwidth.abs_diff(1_000_000_000) < 10_000_000, "{bandwidth}");
    assert_eq!(min_rtt, Duration::from_millis(101));
    assert!(bbr.full && matches!(bbr.mode, Mode::ProbeBandwidth { .. }));
    let before = pipe.delivered;
    pipe.run(&mut bbr, until(9_000), |_, _| {});
    assert!((3_900..=4_000).contains(&(pipe.delivered - before)), "{}", pipe.delivered - before);
}

/// Startup doubles the rate until the pipe is full, three rounds show it, and the queue is drained.
#[test]
fn startup_drain_and_probing_follow_each_other() {
    let (mut pipe, mut bbr) = pipe();
    let mut modes = vec![];
    let mut largest = 0;
    pipe.run(&mut bbr, until(3_000), |bbr, window| {
        let mode = match bbr.mode {
            Mode::Startup => "startup",
            Mode::Drain => "drain",
            Mode::ProbeBandwidth { .. } => "probe bandwidth",
            Mode::ProbeRtt => "probe rtt",
        };
        if modes.last() != Some(&mode) {
            modes.push(mode);
        }
        largest = largest.max(window.cwnd);
    });
    assert_eq!(modes, ["startup", "drain", "probe bandwidth"]);
    // 2.89 products of 101 and three bursts of two; while draining, what aggregation adds.
    assert!((290..320).contains(&largest), "{largest}");
    // The threshold tells that startup is over: one product and three bursts.
    assert!((100..=112).contains(&pipe.window.ssthresh), "{}", pipe.window.ssthresh);
}

#[test]
fn gains_go_round() {
    let (mut pipe, mut bbr) = pipe();
    let mut phases = vec![];
    pipe.run(&mut bbr, until(9_000), |bbr, _| {
        if let Mode::ProbeBandwidth { phase } = bbr.mode {
            assert_eq!((bbr.pacing_gain, bbr.cwnd_gain), (CYCLE[phase], 512));
            if phases.last() != Some(&phase) {
                phases.push(phase);
            }
        }
    });
    assert!(phases.len() > 24, "{phases:?}");
    assert!(phases.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 8), "{phases:?}");
}

#[test]
fn probing_starts_in_any_phase_but_the_second() {
    let mut starts = [0; 8];
    let mut bbr = Bbr::new(Seed(1).stream("bbr"));
    for _ in 0..700 {
        bbr.start_cycle();
        if let Mode::ProbeBandwidth { phase } = bbr.mode {
            starts[phase] += 1;
        }
    }
    assert_eq!(starts[1], 0);
    assert!([0, 2, 3, 4, 5, 6, 7].iter().all(|&phase| starts[phase] > 50), "{starts:?}");
}

/// The path becomes a little longer, so that the minimum does not come again: after 10 s the window falls to 4 for
/// 200 ms and a round trip, and then is what it was.
#[test]
fn the_round_trip_is_probed_after_ten_seconds() {
    let (mut pipe, mut bbr) = pipe();
    pipe.run(&mut bbr, until(500), |_, _| {});
    pipe.delay = Duration::from_millis(102);
    let (mut began, mut ended, mut smallest, mut before) = (None, None, u32::MAX, 0);
    let mut now = pipe.now;
    while now < until(13_000) {
        now += Duration::from_millis(1);
        pipe.run(&mut bbr, now, |_, _| {});
        match (bbr.mode, began, ended) {
            (Mode::ProbeRtt, None, _) => began = Some(now),
            (Mode::ProbeRtt, ..) => smallest = smallest.min(pipe.window.cwnd),
            (_, None, _) => before = pipe.window.cwnd,
            (_, Some(_), None) => ended = Some((now, pipe.window.cwnd)),
            _ => {}
        }
    }
    let (began, (ended, after)) = (began.unwrap(), ended.unwrap());
    assert!((until(10_000)..until(10_600)).contains(&began), "{began:?}");
    let lasted = ended.since(began);
    // The flight needs a round trip to shrink to 4.
    assert!((Duration::from_millis(200)..Duration::from_millis(450)).contains(&lasted), "{lasted:?}");
    assert_eq!(smallest, 4);
    assert!(after + 4 >= before, "{before} before, {after} after");
    assert_eq!(bbr.min_rtt, Some(Duration::from_millis(103)));
    assert!(bbr.bandwidth.max().0 > 990_000_000, "{:?}", bbr.bandwidth.max());
}

#[test]
fn pacing_starts_with_the_window_over_the_round_trip() {
    for (rtt_ms, segments_per_second) in [(100, 100.0), (0, 10_000.0)] {
        let mut window = Window { cwnd: 10, ssthresh: u32::MAX, credit: 0 };
        let mut bbr = Bbr::new(Seed(1).stream("bbr"));
        bbr.open(Instant::ZERO, &mut window, Duration::from_millis(rtt_ms));
        assert_eq!(bbr.pacing_rate(), None);
        bbr.mss = 1000;
        let expected = segments_per_second * 8000.0 * 739.0 / 256.0 * 0.99;
        let rate = bbr.pacing_rate().unwrap().bps as f64;
        assert!((rate / expected - 1.0).abs() < 1e-6, "{rate}, not {expected}");
    }
}

/// Recovery: first as much as is delivered, a round later twice that, at its end the window of before.
#[test]
fn recovery_conserves_then_restores() {
    let (mut pipe, mut bbr) = pipe();
    pipe.run(&mut bbr, until(5_000), |_, _| {});
    let window = &mut pipe.window;
    let before = window.cwnd;
    let total = pipe.delivered;
    let ack = |delivered: u64, prior: u64, lost: u32, in_flight: u32| Ack {
        now: until(5_000),
        newly_delivered: 1,
        acked: 0,
        growth_limit: u32::MAX,
        avoidance_limit: u32::MAX,
        newly_lost: lost,
        in_flight_before: in_flight + 1,
        in_flight,
        rtt: None,
        smoothed_rtt: Duration::from_millis(101),
        mss: 1448,
        window_limited: true,
        delivery: Delivery {
            total: total + delivered,
            prior: Some(total + prior),
            segments: 100,
            interval: Duration::from_millis(101),
            app_limited: false,
        },
        acknowledged: 0,
        next: 0,
    };

    let ssthresh = window.ssthresh;
    window.ssthresh = bbr.ssthresh(until(5_000), window);
    assert_eq!(window.ssthresh, ssthresh);
    bbr.phase(until(5_000), Phase::Recovery, window);
    bbr.on_ack(&ack(1, 0, 20, 90), window);
    assert_eq!(window.cwnd, 91);
    bbr.on_ack(&ack(2, 0, 0, 90), window);
    assert_eq!(window.cwnd, 91);
    bbr.on_ack(&ack(3, 1, 0, 90), window);
    assert_eq!(window.cwnd, 92);
    bbr.phase(until(5_000), Phase::Open, window);
    bbr.on_ack(&ack(4, 1, 0, 90), window);
    assert!(window.cwnd.abs_diff(before) <= 4, "{before} before, {} after", window.cwnd);
}

#[test]
fn a_rate_of_the_application_is_no_bandwidth() {
    let (mut pipe, mut bbr) = pipe();
    pipe.run(&mut bbr, until(3_000), |_, _| {});
    let bandwidth = bbr.bandwidth.max();
    pipe.app_limited = true;
    pipe.pause_between = Duration::from_millis(20);
    pipe.run(&mut bbr, until(9_000), |_, _| {});
    assert_eq!(bbr.bandwidth.max(), bandwidth);
}
