//! Jobs of general tasks on the command line: listed, watched, explained, measured.

use std::process::Stdio;

use serde_json::Value;
use syncline::{CallOptions, Client, Cluster, Function, GraphRun, TaskGraph};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    json::Page,
    rig::{Ended, Killed, Up, command, folder, kill, processes, syncline, wait_until},
};

/// As the worker of `syncline bench` has it.
const NEXT: Function<(u64,), u64> = Function::new("bench.next");
const NOBODYS: Function<(u64,), u64> = Function::new("nobody.has-it");

struct RunningCluster {
    /// Runs as long as the cluster.
    _worker: Killed,
    up: Up,
    client: Client,
    runtime: Runtime,
    /// Removed last: whoever still runs would write into it again.
    dir: TempDir,
}

impl RunningCluster {
    /// A cluster with one worker that runs general tasks, and none that trains.
    fn start() -> Self {
        let dir = folder();
        let up = Up::start(&dir, &["--workers", "0", "--shards", "1"]);
        let state_dir = dir.path().to_str().unwrap();
        let mut worker = command(&["bench-worker", "--lane", "a", "--state-dir", state_dir]);
        let worker = Killed::start(worker.stdout(Stdio::null()));
        let Cluster { engines, token } = Cluster::load(None, None, Some(dir.path())).unwrap();
        let client = Client::new(engines, token);
        Self { _worker: worker, up, client, runtime: Runtime::new().unwrap(), dir }
    }

    fn run(&self, args: &[&str]) -> Ended {
        syncline(&[args, &["--state-dir", self.dir.path().to_str().unwrap()]].concat())
    }

    fn submit(&self, graph: &TaskGraph) -> GraphRun {
        self.runtime.block_on(self.client.submit_tasks(graph)).unwrap()
    }
}

/// A chain of two with a name at its end.
fn chain(id: &str, first: Function<(u64,), u64>) -> TaskGraph {
    let mut graph = TaskGraph::new(id);
    let one = graph.call(first, (1,));
    graph.call_with(&CallOptions::new().name("last"), NEXT, (one,));
    graph
}

#[test]
fn a_job_of_tasks_is_watched_listed_and_explained() {
    let (cluster, page) = (RunningCluster::start(), Page::read());
    cluster.submit(&chain("numbers", NEXT));
    let watched = cluster.run(&["watch", "numbers"]).ok().out;
    assert!(watched.contains("2 of 2 ended") && watched.contains("2 done"), "{watched}");
    assert!(!watched.contains("epoch") && !watched.contains("samples"), "{watched}");
    let jobs = cluster.run(&["jobs"]).ok().out;
    assert!(jobs.contains("2/2 tasks") && !jobs.contains("loss"), "{jobs}");
    let listed = cluster.run(&["tasks", "numbers"]).ok().out;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("bench.next") && listed.contains("last"), "{listed}");
    let one = cluster.run(&["tasks", "numbers", "last"]).ok().out;
    assert!(one.starts_with("task      1 (last): done") && one.contains("needs     0: done"), "{one}");
    assert!(one.contains("\nvalue     3\n"), "{one}");
    let file = cluster.dir.path().join("numbers.export").display().to_string();
    cluster.run(&["export", "numbers", &file]).ok();
    let read = cluster.run(&["tasks", "numbers", "last", "--from", &file]).ok().out;
    assert_eq!(read, one);
    let taken = cluster.run(&["tasks", "numbers", "0"]).ok().out;
    assert!(!taken.contains("value"), "only another task takes it: {taken}");

    page.holds("tasks JOB", &cluster.run(&["tasks", "numbers", "--json"]).ok());
    let json = cluster.run(&["tasks", "numbers", "1", "--json"]).ok();
    page.holds("tasks JOB TASK", &json);
    assert_eq!(json.json()[0]["value"], "3");
    page.holds("status", &cluster.run(&["status", "numbers", "--json"]).ok());
    page.holds("jobs", &cluster.run(&["jobs", "--json"]).ok());
    page.holds("events JOB", &cluster.run(&["events", "numbers", "--json"]).ok());
    let followed = cluster.run(&["events", "numbers", "--follow"]).ok().out;
    let whats = ["job_submitted", "started  tasks 2", "job_ended  state done"];
    assert!(followed.lines().zip(whats).all(|(line, what)| line.contains(what)), "{followed}");
    let followed = cluster.run(&["events", "numbers", "--follow", "--json"]).ok().out;
    assert_eq!(followed.lines().count(), 3, "{followed}");
    followed.lines().for_each(|line| page.holds_line("events JOB --follow", line));
    let counts = cluster.run(&["status", "numbers", "--json"]).ok().json()["job"]["tasks"].clone();
    assert_eq!((counts["total"].as_u64(), counts["done"].as_u64()), (Some(2), Some(2)), "{counts}");
}

/// As docs/redis-schema.md shows it.
#[test]
fn whoever_has_only_redis_sees_where_a_task_stands_and_what_it_takes() {
    let cluster = RunningCluster::start();
    let mut graph = TaskGraph::new("primes");
    let first: Vec<_> = (0..16).map(|n| graph.call(NOBODYS, (n,))).collect();
    let takes_first = graph.call(NEXT, (first[3],));
    graph.call_with(&CallOptions::new().name("seventeen"), NEXT, (takes_first,));
    cluster.submit(&graph);
    let bulk = |words: &str| {
        let said = cluster.up.redis(words);
        said.lines().nth(2).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let states = bulk("HGET syncline:{primes}:states 0");
    assert_eq!(&states[17..18], "w", "{states}");
    assert_eq!(states, "r".repeat(16) + "ww");
    let part: Value = serde_json::from_str(&bulk("HGET syncline:{primes}:graph 0")).unwrap();
    let about = part[17].to_string();
    assert!(about.contains("16") && about.contains("seventeen"), "{about}");
    let nothing = cluster.up.redis("HGET syncline:{primes}:faults 17");
    assert_eq!(nothing.lines().nth(1), Some("$-1"), "it was never tried: {nothing}");
}

#[test]
fn a_client_that_ends_while_it_sends_a_graph_goes_on_when_it_is_run_again() {
    let cluster = RunningCluster::start();
    let build = || {
        let mut graph = TaskGraph::new("large");
        let last = graph.map(NEXT, (0..100_000).map(|n| (n,))).pop().unwrap();
        (graph, last)
    };
    let client = cluster.client.clone();
    let first = cluster.runtime.spawn(async move { client.submit_tasks(&build().0).await });
    // Its first part is there, and others are not: unless this test is slow, which changes nothing of what it
    // wants.
    wait_until("a part has come", || cluster.run(&["status", "large"]).code == 0);
    first.abort();
    let status = cluster.run(&["status", "large", "--json"]).ok().json()["job"].clone();
    eprintln!("when the client ended: {}, {} tasks", status["state"], status["tasks"]["total"]);

    let (graph, last) = build();
    let run = cluster.submit(&graph);
    assert_eq!(cluster.runtime.block_on(run.get(&last)).unwrap(), 100_000);
    let counts = cluster.run(&["status", "large", "--json"]).ok().json()["job"]["tasks"].clone();
    assert_eq!(counts["total"].as_u64(), Some(100_000), "{counts}");
}

#[test]
fn a_graph_whose_first_parts_redis_has_lost_is_sent_once_more() {
    let cluster = RunningCluster::start();
    for n in 0..5 {
        let name = format!("large-{n}");
        let mut graph = TaskGraph::new(name.clone());
        let last = graph.map(NEXT, (0..200_000).map(|n| (n,))).pop().unwrap();
        let client = cluster.client.clone();
        let submitting = cluster.runtime.spawn(async move { client.submit_tasks(&graph).await });
        wait_until("a part has come", || cluster.run(&["status", &name]).code == 0);
        let engine = processes(cluster.dir.path()).into_iter().find(|(name, _)| name == "engine").unwrap().1;
        kill("KILL", engine);
        let is_half = cluster.up.redis(&format!("HGET syncline:{{{name}}}:job state")).contains("queued");
        if is_half {
            let keys = ["job", "state", "graph", "classes", "states", "values", "faults", "leases", "events"];
            let lost: Vec<String> = keys.iter().map(|key| format!("syncline:{{{name}}}:{key}")).collect();
            cluster.up.redis(&format!("DEL {}", lost.join(" ")));
        }
        let run = cluster.runtime.block_on(submitting).unwrap().unwrap();
        assert_eq!(cluster.runtime.block_on(run.get(&last)).unwrap(), 200_000);
        if is_half {
            return;
        }
        eprintln!("all parts of {name} had come: once more");
    }
    panic!("no engine was killed while a graph came");
}

#[test]
fn a_worker_says_what_memory_it_has_and_a_task_that_needs_more_says_so() {
    let cluster = RunningCluster::start();
    let workers = || cluster.run(&["workers", "--json"]).ok().json();
    wait_until("the worker is registered", || workers().as_array().is_some_and(|all| !all.is_empty()));
    let worker = workers()[0].clone();
    assert!(worker["memory_bytes"].as_u64() > Some(1 << 20) && worker["gpus"] == 0, "{worker}");
    let mut graph = TaskGraph::new("memory");
    graph.call_with(&CallOptions::new().memory(1 << 20), NEXT, (1,));
    graph.call_with(&CallOptions::new().memory(1 << 50), NEXT, (1,));
    cluster.submit(&graph);
    let state = |task| cluster.run(&["tasks", "memory", task]).ok().out;
    wait_until("the small one is done", || state("0").starts_with("task      0: done"));
    let ran = state("0");
    assert!(ran.contains("\nworker    ") && ran.contains("\nran       0."), "{ran}");
    let waits = state("1");
    assert!(waits.contains("can ever hold it: it needs 1024 TiB of memory"), "{waits}");
}

#[test]
fn several_jobs_are_paused_resumed_and_canceled_and_one_that_is_not_there_keeps_no_other_back() {
    let cluster = RunningCluster::start();
    for id in ["first", "second"] {
        cluster.submit(&chain(id, NOBODYS));
    }
    let page = Page::read();
    for (command, row) in
        [("pause", "pause JOB JOB ..."), ("resume", "resume JOB JOB ..."), ("cancel", "cancel JOB JOB ...")]
    {
        let done = cluster.run(&[command, "first", "nobody", "second", "--json"]);
        let lines: Vec<&str> = done.out.lines().collect();
        assert!(done.code == 1 && lines.len() == 2 && done.err.contains("E131"), "{done:#?}");
        lines.iter().for_each(|line| page.holds_line(row, line));
    }
    for id in ["first", "second"] {
        assert_eq!(cluster.run(&["status", id, "--json"]).ok().json()["job"]["state"], "canceled");
    }
}

#[test]
fn a_task_that_nobody_can_run_says_so() {
    let cluster = RunningCluster::start();
    // The reason counts the workers: wait until there is one.
    let workers = || cluster.runtime.block_on(cluster.client.workers()).unwrap();
    wait_until("the worker is registered", || !workers().is_empty());
    cluster.submit(&chain("stuck", NOBODYS));
    let ready = cluster.run(&["tasks", "stuck", "0"]).ok().out;
    assert!(ready.starts_with("task      0: ready"), "{ready}");
    assert!(ready.contains("the function `nobody.has-it`"), "{ready}");
    assert_eq!(cluster.run(&["explain", "stuck", "0"]).ok().out, ready);
    let page = Page::read();
    page.holds("explain JOB TASK (general)", &cluster.run(&["explain", "stuck", "0", "--json"]).ok());
    let whole = cluster.run(&["explain", "stuck"]).ok().out;
    assert!(whole.starts_with("stuck: running  0/2 tasks"), "{whole}");
    assert!(whole.contains("\n  waits for: ") && whole.contains("it waits for task 0"), "{whole}");
    let explained = cluster.run(&["explain", "stuck", "--json"]).ok();
    page.holds("explain JOB", &explained);
    assert_eq!(explained.json()["tasks"][0]["state"], "ready", "the one that nobody can run comes first");
    cluster.run(&["explain", "stuck", "7"]).refused(1, "E344");
    cluster.run(&["explain", "stuck", "it/w101/3"]).refused(1, "E344");
    let waiting = cluster.run(&["tasks", "stuck", "--state", "waiting"]).ok().out;
    assert!(waiting.lines().count() == 2 && waiting.contains("it waits for task 0"), "{waiting}");
    let first = cluster.run(&["tasks", "stuck", "--limit", "1"]).ok();
    assert!(first.out.lines().count() == 2 && first.err.contains("--first 1 goes on"), "{first:#?}");
    cluster.run(&["tasks", "stuck", "--limit", "10000"]).ok();
    let too_many = cluster.run(&["tasks", "stuck", "--limit", "10001"]).refused(2, "E500");
    assert!(too_many.err.contains("10001 is not in 1..=10000"), "{too_many:#?}");
    let status = cluster.run(&["status", "stuck"]).ok().out;
    assert!(status.contains("1 waiting, 1 ready") && status.contains("waits for"), "{status}");
    cluster.run(&["tasks", "stuck", "7"]).refused(1, "E344");
    cluster.run(&["tasks", "stuck", "nobody"]).refused(1, "E344");
    cluster.run(&["tasks", "nobody"]).refused(1, "E131");
    cluster.run(&["tasks", "stuck", "--state", "sad"]).refused(2, "E005");
    let resumed = cluster.run(&["resume", "stuck"]).ok();
    assert!(resumed.err.contains("was not paused: it is running"), "{resumed:#?}");
    page.holds("pause", &cluster.run(&["pause", "stuck", "--json"]).ok());
    let again = cluster.run(&["pause", "stuck"]).ok();
    assert!(again.err.contains("was paused already"), "{again:#?}");
    let paused = cluster.run(&["tasks", "stuck", "0"]).ok().out;
    assert!(paused.contains("because   the job is paused"), "{paused}");
    page.holds("resume", &cluster.run(&["resume", "stuck", "--json"]).ok());
    cluster.run(&["cancel", "stuck", "--reason", "nobody comes"]).ok();
    let status = cluster.run(&["status", "stuck"]).ok().out;
    assert!(status.contains("2 canceled") && status.contains("nobody comes"), "{status}");
    let events = cluster.run(&["events", "stuck"]).ok().out;
    assert!(events.contains("job_ended  reason nobody comes  state canceled"), "{events}");
    let explained = cluster.run(&["explain", "stuck", "0"]).ok().out;
    assert!(explained.contains("nobody comes"), "{explained}");
    let watched = cluster.run(&["watch", "stuck"]).refused(1, "E507");
    assert!(watched.err.contains("job stuck was canceled: nobody comes"), "{watched:#?}");
}

#[test]
fn benchmarks_of_tasks_and_links_print_what_the_page_says() {
    let page = Page::read();
    let small = [
        &["bench", "tasks", "--count", "300"][..],
        &["bench", "chain", "--length", "20"],
        &["bench", "fan", "--width", "30", "--runs", "1"],
        &["bench", "values", "--count", "10", "--kib", "20"],
        &["bench", "push", "--transport", "tcp", "--mb", "2", "--rounds", "1"],
        &["bench", "push", "--transport", "unix", "--mb", "2", "--rounds", "2"],
        &["bench", "push", "--mb", "2", "--rounds", "1"],
    ];
    for args in small {
        let printed = syncline(&[args, &["--json"]].concat()).ok();
        page.holds(&args[..2].join(" "), &printed);
        let positive = |value: &Value| value.is_string() || value.as_f64().is_some_and(|number| number > 0.0);
        assert!(printed.json().as_object().unwrap().values().all(positive), "{printed:#?}");
    }
    // A small graph may fit into memory that the engine has already.
    page.holds("bench graph", &syncline(&["bench", "graph", "--count", "200", "--json"]).ok());
    let said = syncline(small[0]).ok().out;
    assert!(said.starts_with("300 tasks: ") && said.contains("\nthe limit: "), "{said}");
}

#[test]
fn benchmarks_of_training_print_what_the_page_says() {
    let page = Page::read();
    let step = ["bench", "step", "--only", "small", "--rounds", "1", "--shards", "1", "--json"];
    page.holds("bench step", &syncline(&step).ok());
    let scaling =
        ["bench", "scaling", "--seconds", "1", "--rounds", "1", "--policies", "asp,bsp", "--slow", "1,2"];
    let printed = syncline(&[&scaling[..], &["--json"]].concat()).ok();
    page.holds("bench scaling", &printed);
    let policies = printed.json()["policies"].clone();
    let shares = policies.as_array().unwrap().iter().map(|policy| policy["share_of_bare"].as_f64().unwrap());
    assert!(shares.clone().count() == 2 && shares.into_iter().all(|share| share > 0.0), "{printed:#?}");
}

#[test]
fn a_job_is_measured_on_a_device_beside_its_bare_loop() {
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/jobs/digits.toml");
    // One worker is enough, whatever the job asks for, and nothing is evaluated.
    let set = [
        ["--set", "settings.batch=64"],
        ["--set", "settings.min_workers=2"],
        ["--set", "data.validation_percent=10"],
        ["--set", "settings.evaluate={ every_epochs = 1 }"],
    ]
    .concat();
    let device = [&["bench", "device", job, "--seconds", "1"][..], &set].concat();
    let printed = syncline(&[&device[..], &["--policies", "asp,local-sgd:4", "--json"]].concat()).ok();
    Page::read().holds("bench device", &printed);
    let measured = printed.json();
    assert_eq!((measured["batch"].as_u64(), measured["device"].as_str()), (Some(64), Some("cpu")));
    let policies = measured["policies"].as_array().unwrap();
    let named: Vec<_> = policies.iter().filter_map(|policy| policy["policy"].as_str()).collect();
    assert_eq!(named, ["asp", "local-sgd:4"]);
    assert!(policies.iter().all(|policy| policy["share_of_bare"].as_f64().unwrap() > 0.0), "{printed:#?}");
    for (wrong, code) in [(["--set", "settings.bach=64"], "E369"), (["--device", "cuda:300"], "E490")] {
        let refused = syncline(&[&["bench", "device", job][..], &wrong].concat());
        assert!(refused.code == 2 && refused.err.contains(code), "{refused:#?}");
    }
}

#[test]
fn benchmarks_of_compression_and_rows_print_what_the_page_says() {
    let page = Page::read();
    for link in [&["--link-mbit", "800"][..], &["--compression", "none,top-k:0.5"]] {
        let compression = ["bench", "compression", "--mb", "1", "--rounds", "1", "--json"];
        let printed = syncline(&[&compression[..], link].concat()).ok();
        page.holds("bench compression", &printed);
        let kinds = printed.json()["kinds"].clone();
        // What `auto` finds out depends on how busy this machine is.
        let kinds = kinds.as_array().unwrap().iter().filter(|kind| kind["compression"] != "auto");
        let bytes: Vec<u64> = kinds.map(|kind| kind["bytes"].as_u64().unwrap()).collect();
        assert!(bytes.len() > 1 && bytes[1..].iter().all(|less| *less < bytes[0]), "{printed:#?}");
    }
    let rows = ["bench", "rows", "--rows", "3000", "--batch", "8", "--rounds", "1"];
    let printed = syncline(&[&rows[..], &["--json"]].concat()).ok();
    page.holds("bench rows", &printed);
    let pushed =
        ["0", "1"].map(|kind| printed.json().pointer(&format!("/kinds/{kind}/push_bytes")).unwrap().as_u64());
    assert!(pushed[0] < pushed[1] && syncline(&rows).ok().out.contains("whole"), "{printed:#?}");
}
