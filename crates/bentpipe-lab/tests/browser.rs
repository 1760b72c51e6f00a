//! The report in a real browser: its script runs, its charts are drawn, and it asks nobody for anything.

use bentpipe_lab::record::Record;
use bentpipe_lab::report;
use std::process::Command;

const RECORD: &str = r#"{
  "format": "bentpipe-record", "version": 1, "bentpipe": "0.1.0", "created": "2026-11-21T20:00:00Z", "mode": "live",
  "machine": { "kernel": "Linux", "cores": 2, "privileged": false },
  "title": "A </script><script>document.title = 'broken'</script> title", "scenario_file": "x.toml", "scenario": "title = 'x'",
  "seed": 1, "complete": true,
  "cases": [{
    "name": "only", "seconds": 10.0, "validity": { "valid": true }, "settings": [],
    "workloads": [{
      "name": "ping", "app": "ping", "client": "a", "server": "b", "start": 0.0, "end": 10.0, "status": "done",
      "measurements": [{ "name": "rtt_median", "unit": "s", "value": 0.5 }],
      "series": [{ "name": "rtt", "unit": "s", "points": [[1.0, 0.5], [2.0, 0.6], [3.0, 0.5]] }]
    }],
    "links": [{
      "name": "sat", "kind": "lan", "summary": "a link", "directions": [{
        "from": "b", "to": "a", "counters": {
          "offered_packets": 3, "offered_bytes": 252, "dropped_packets": 0, "sent_packets": 3, "link_bytes": 300,
          "damaged_packets": 0, "bit_errors": 0, "lost_packets": 0, "delivered_packets": 3, "delivered_bytes": 252,
          "queue_bytes_max": 84
        },
        "series": [{ "name": "queue", "unit": "B", "points": [[0.0, 0.0], [1.0, 84.0], [2.0, 0.0]] }]
      }]
    }]
  }]
}"#;

#[test]
fn charts_are_drawn_and_nothing_runs_that_a_record_says() {
    let Some(browser) = find("chromium") else {
        assert!(std::env::var_os("CI").is_none(), "CI installs chromium (make setup-test)");
        eprintln!("skipped: no chromium; install it with: apt-get install chromium");
        return;
    };
    let folder = std::env::temp_dir().join(format!("bentpipe-browser-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let page = folder.join("report.html");
    std::fs::write(&page, report::html(&Record::from_json(RECORD).unwrap())).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(dom.contains("<canvas"), "no chart was drawn\n{errors}\n{}", &dom[..dom.len().min(2_000)]);
    assert!(!dom.contains("<title>broken"), "a record's text ran as a script");
    assert!(dom.contains("A &lt;/script&gt;"), "the title is shown as it is");
}

fn find(program: &str) -> Option<std::path::PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}
