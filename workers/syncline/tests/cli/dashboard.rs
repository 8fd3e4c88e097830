//! The page of a cluster, asked for as a browser and Prometheus do.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
};

use serde_json::Value;

use crate::{
    job::write_job,
    rig::{Killed, Up, command, folder, kill, syncline, wait_until},
};

/// A running `syncline dashboard`.
struct Dashboard {
    /// Runs as long as it is asked.
    _child: Killed,
    /// HOST:PORT.
    address: String,
}

/// Status, headers and body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Dashboard {
    fn start(state_dir: &str) -> Self {
        let mut command = command(&["dashboard", "--listen", "127.0.0.1:0", "--state-dir", state_dir]);
        let mut child = Killed::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("dashboard http://").unwrap().trim_end_matches('/').to_owned();
        Self { _child: child, address }
    }

    fn ask(&self, method: &str, path: &str, host: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &self.address)
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }
}

#[test]
fn the_page_shows_a_job_and_outlives_a_night_without_a_cluster() {
    let dir = folder();
    let state = dir.path().to_str().unwrap();
    let up = Up::start(&dir, &["--workers", "2", "--shards", "1"]);
    let dashboard = Dashboard::start(state);
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    syncline(&["submit", file.to_str().unwrap(), "--state-dir", state, "--watch"]).ok();

    for (path, kind) in [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")] {
        let page = dashboard.get(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.head.contains(&format!("content-type: {kind}")), "{}", page.head);
        assert!(page.head.contains("content-security-policy: default-src 'self'"), "{}", page.head);
    }
    let cluster = dashboard.json("/api/cluster");
    assert_eq!((&cluster["jobs"][0]["id"], &cluster["jobs"][0]["state"]), (&"points".into(), &"done".into()));
    assert_eq!(cluster["workers"].as_array().unwrap().len(), 2);
    assert_eq!(cluster["engine"]["shards_present"], 1);
    // The same as the commands say.
    for (path, words) in [("/api/jobs/points", "status"), ("/api/jobs/points/events", "events")] {
        let told = syncline(&[words, "points", "--json", "--state-dir", state]).ok().json();
        assert_eq!(dashboard.json(path), told, "{path}");
    }
    let curve = dashboard.get("/api/jobs/points/loss.svg");
    assert!(curve.head.contains("content-type: image/svg+xml"), "{}", curve.head);
    assert!(curve.body.starts_with("<svg") && curve.body.contains("<polyline"), "{}", curve.body);
    let metrics = dashboard.get("/metrics").body;
    assert!(metrics.contains("\nsyncline_up 1\n"), "{metrics}");
    assert!(metrics.contains("\nsyncline_job_samples_applied{job=\"points\"} 480\n"), "{metrics}");
    assert_eq!(dashboard.get("/healthz").status, 200);

    // Meanwhile the night comes.
    drop(up);
    wait_until("the page says that no engine answers", || dashboard.get("/healthz").status == 503);
    // What others were told half a second ago is told again.
    wait_until("so do the metrics", || dashboard.get("/metrics").body.ends_with("\nsyncline_up 0\n"));
    let trouble = dashboard.get("/api/cluster");
    assert_eq!(trouble.status, 503);
    let trouble: Value = serde_json::from_str(&trouble.body).unwrap();
    assert!(trouble["code"].as_str().unwrap().starts_with("E3") && trouble["hint"] != "", "{trouble}");
    let _up = Up::start(&dir, &["--workers", "2", "--shards", "1"]);
    wait_until("the page shows the next day", || dashboard.get("/api/cluster").status == 200);
    assert_eq!(dashboard.json("/api/jobs/points")["job"]["state"], "done");

    // What it does not have, and for whom it is not.
    let missing = dashboard.get("/api/jobs/nope");
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains(r#""code":"E131""#), "{}", missing.body);
    assert_eq!(dashboard.get("/../etc/passwd").status, 404);
    assert_eq!(dashboard.ask("POST", "/api/cluster", &dashboard.address).status, 405);
    assert_eq!(dashboard.ask("GET", "/api/cluster", "evil.example").status, 403);
}

#[test]
fn while_redis_hangs_the_engine_is_healthy_as_long_as_it_leads_and_redis_is_said_to_be_the_problem() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "0", "--shards", "1"]);
    let dashboard = Dashboard::start(dir.path().to_str().unwrap());
    assert!(dashboard.get("/metrics").body.contains("\nsyncline_store_problem 0\n"));
    let redis = up.about["processes"]["redis"].as_u64().unwrap() as u32;
    kill("STOP", redis);
    wait_until("Redis has a problem", || {
        dashboard.get("/metrics").body.contains("\nsyncline_store_problem 1\n")
    });
    assert_eq!(dashboard.get("/healthz").status, 200);
    assert!(dashboard.get("/metrics").body.contains("\nsyncline_up 1\n"));
    kill("CONT", redis);
    wait_until("it has none any more", || {
        dashboard.get("/metrics").body.contains("\nsyncline_store_problem 0\n")
    });
}

#[test]
fn a_port_that_is_taken_is_named_with_what_to_do() {
    let dir = folder();
    let state = dir.path().to_str().unwrap();
    let none = syncline(&["dashboard", "--listen", "127.0.0.1:0", "--state-dir", state]);
    none.refused(3, "E511");
    let up = Up::start(&dir, &["--workers", "0", "--shards", "1"]);
    let taken = up.about["engine"].as_str().unwrap();
    let refused = syncline(&["dashboard", "--listen", taken, "--state-dir", state]).refused(2, "E520");
    assert!(refused.err.contains("--listen names another address"), "{}", refused.err);
}
