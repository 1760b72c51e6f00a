//! However a run ends, nothing of it stays: no process, no namespace, no device, no file.

use crate::place::{Place, User, WaitLimited, users, wait};
use crate::processes::{self, GONE_WITHIN};
use crate::recorded::run;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Children in every way there is to leave one behind, then a wait for the end of standard input.
const LEAVES_CHILDREN: &str = "nohup sleep 1000 >nohup.out 2>&1 & setsid sleep 1001 >/dev/null 2>&1 & \
    (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1002 & sleep 1003' >/dev/null 2>&1 &); \
    sleep 0.5; echo ready; read line; exit 4";

#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    ByItself,
    CtrlC,
    Terminate,
    HangUp,
    Kill,
}

#[test]
fn nothing_stays_of_a_shell() {
    for user in users() {
        for end in [End::ByItself, End::CtrlC, End::Terminate, End::HangUp, End::Kill] {
            ends(user, end);
        }
    }
}

fn ends(user: User, end: End) {
    let what = format!("{end:?} as {user:?}");
    let place = Place::new(user);
    let devices = emulator_devices();
    let named = named_namespaces();
    let hub = "setsid sleep 1004 & sleep 1005";
    let mut command = place.bentpipe(&["shell", "lan", "--hub", hub, "--", "sh", "-c", LEAVES_CHILDREN]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n", "{what}");
    let all = processes::of(&place);
    // Ours, the first of its process namespace, the hub's shell and two programs, the terminal's shell and five.
    assert!(all.len() >= 10, "{what}: {:?}", processes::describe(&all));
    let namespaces = processes::network_namespaces(&all);
    assert!(namespaces.len() >= 3, "{what}: two sites and the engine: {namespaces:?}");
    assert_eq!(place.leftovers().len(), 1, "{what}");
    let pid = Pid::from_child(&child);
    match end {
        End::ByItself => drop(child.stdin.take()),
        // As a terminal does: to everyone in the foreground.
        End::CtrlC => kill_process_group(pid, Signal::INT).unwrap(),
        End::Terminate => kill_process(pid, Signal::TERM).unwrap(),
        End::HangUp => kill_process(pid, Signal::HUP).unwrap(),
        End::Kill => kill_process(pid, Signal::KILL).unwrap(),
    }
    let expected = match end {
        End::ByItself => 4,
        End::CtrlC => 128 + 2,
        // The command is told to hang up first.
        End::Terminate | End::HangUp => 128 + 1,
        End::Kill => 128 + 9,
    };
    assert_eq!(wait(child).code(), expected, "{what}");
    let ended = processes::ticks();
    processes::all_gone(&place).unwrap_or_else(|left| panic!("{what}: {left:#?}"));
    let give_up = Instant::now() + GONE_WITHIN;
    loop {
        let holders = processes::holders(&namespaces, ended);
        if holders.is_empty() {
            break;
        }
        assert!(Instant::now() < give_up, "{what}: {holders:#?} hold {namespaces:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(emulator_devices(), devices, "{what}");
    assert_eq!(named_namespaces(), named, "{what}");
    if end == End::Kill {
        // At the latest, the next run removes what a killed one left.
        place.bentpipe(&["shell", "lan", "-q", "--", "true"]).ends().expect(0);
    }
    assert_eq!(place.leftovers(), [""; 0], "{what}");
}

/// The emulator's devices, should any be in the machine's own network.
fn emulator_devices() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    let names = text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let ours = |name: &String| name == "sat" || name.strip_prefix('p').is_some_and(|rest| rest.contains('x'));
    names.filter(ours).collect()
}

/// What `ip netns` would list.
fn named_namespaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A workload's program that leaves a child behind, holding its output open, must neither hang the run nor outlive it.
#[test]
fn a_run_does_not_wait_for_what_its_programs_left() {
    let scenario = "title = 'left'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
        [[services]]\nsite = 'hub'\ncommand = 'setsid sleep 1000 & sleep 1001'\n\
        [[workloads]]\nname = 'forks'\napp = 'command'\nclient = 'pc'\ncommand = 'sleep 1002 & echo forked'\n\
        [[workloads]]\nname = 'daemon'\napp = 'command'\nclient = 'pc'\ncommand = 'setsid sleep 1003 & sleep 0.2; echo left'\n";
    for user in users() {
        let place = Place::new(user);
        let recorded = run(&place, scenario, &[]);
        for (name, text) in [("forks", "forked\n"), ("daemon", "left\n")] {
            let workload = recorded.workload(0, name);
            assert_eq!(
                (&workload["status"], &workload["command"]["stdout"]),
                (&"done".into(), &text.into()),
                "{user:?}"
            );
        }
        processes::all_gone(&place).unwrap();
        assert_eq!(place.leftovers(), [""; 0]);
    }
}

/// Where memory ends, threads cannot be started at any point; whatever was under way then ends.
#[test]
fn a_run_without_memory_ends() {
    let scenario = "title = 'poor'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
        [[services]]\nsite = 'hub'\ncommand = 'sleep 1009'\n\
        [[workloads]]\napp = 'command'\nclient = 'pc'\ncommand = 'sleep 0.1'\n";
    for user in users() {
        let place = Place::new(user);
        place.write("s.toml", scenario);
        for kilobytes in (120_000..400_000).step_by(20_000) {
            let line = format!("ulimit -v {kilobytes}; exec {} run s.toml --out out", env!("CARGO_BIN_EXE_bentpipe"));
            // How it ends is a matter of how much it needed.
            place.command("sh").args(["-c", &line]).ends();
            processes::all_gone(&place).unwrap_or_else(|left| panic!("{kilobytes} kB as {user:?}: {left:#?}"));
        }
    }
}

#[test]
fn a_killed_run_leaves_no_process() {
    let scenario = "title = 'killed'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
        [[services]]\nsite = 'hub'\ncommand = 'setsid sleep 1000 & sleep 1001'\n\
        [[workloads]]\napp = 'command'\nclient = 'pc'\ncommand = 'setsid sleep 1002 & touch up; sleep 1003'\n";
    for user in users() {
        let place = Place::new(user);
        place.write("s.toml", scenario);
        let mut command = place.bentpipe(&["run", "s.toml", "--out", "out"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let give_up = Instant::now() + Duration::from_secs(30);
        while !place.at("up").exists() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(processes::of(&place).len() >= 6, "{user:?}");
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        processes::all_gone(&place).unwrap();
    }
}

/// A killed process group or container takes along whoever would have cleaned up.
#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    for user in users() {
        let place = Place::new(user);
        let alive = format!("bentpipe-{}-0", std::process::id());
        let abandoned = ["bentpipe-999999999-0", "bentpipe-999999998-7"];
        let locked = "bentpipe-999999997-0";
        let others = ["bentpipe-12", "bentpipe-999999996-a"];
        for name in [&abandoned[..], &others, &[locked, &alive]].concat() {
            place.make_folder(&format!("tmp/{name}"));
            place.write(&format!("tmp/{name}/hosts"), "127.0.0.1 localhost\n");
        }
        place.write("tmp/bentpipe-999999998-7/resolv.conf", "nameserver 192.0.2.1\n");
        // Its process may be of another process namespace.
        let lock = std::fs::File::open(place.at(&format!("tmp/{locked}"))).unwrap();
        lock.lock().unwrap();
        // One that holds something else keeps that, and one that leads elsewhere is not followed.
        place.make_folder("tmp/bentpipe-999999995-0");
        place.write("tmp/bentpipe-999999995-0/mine", "mine");
        place.make_folder("elsewhere");
        place.write("elsewhere/hosts", "precious");
        std::os::unix::fs::symlink(place.at("elsewhere"), place.at("tmp/bentpipe-999999994-0")).unwrap();
        place.bentpipe(&["shell", "lan", "-q", "--", "true"]).ends().expect(0);
        let mut expected = vec!["bentpipe-999999994-0", "bentpipe-999999995-0", locked, &alive];
        expected.extend(others);
        expected.sort();
        assert_eq!(place.leftovers(), expected, "{user:?}");
        for name in [locked, &alive] {
            assert_eq!(place.list(&format!("tmp/{name}")), ["hosts"], "{user:?}");
        }
        assert_eq!(place.read("elsewhere/hosts"), "precious");
    }
}
