//! What runs: engine, shards, workers.

use syncline_engine::store::RedisAddress;
use syncline_ps::transport::TransportChoice;
use syncline_rpc::{AOF_HINT, EngineAddresses, is_aof_failure, is_of_every_machine, status::EngineStatus};

use super::{DoctorArgs, Exit, Finding, redis, transports};
use crate::cli::{ConnectionArgs, Failure, ask_each};

pub(crate) async fn check(args: &DoctorArgs) -> Vec<Finding> {
    let (connection, named) = (&args.connection, args.redis.as_deref());
    let running = connection.running_here();
    let url = named.map(str::to_owned).or_else(|| running.as_ref()?.redis_url());
    let nothing_runs = running.is_none() && connection.engine.is_none();
    // What the engine needs comes before the engine, so that causes stand before their consequences.
    let mut findings = match (url, running) {
        (None, Some(running)) => vec![Finding::warn(
            "redis",
            running.redis,
            "its address holds a password, which is not written down: set SYNCLINE_REDIS to it, or name it without its password with --redis, and a file that holds the password with --redis-password-file",
        )],
        (None, None) => {
            vec![Finding::warn("redis", "no address is known", "name one with --redis to have it checked")]
        }
        (Some(url), _) => {
            // That of the cluster in the state directory has its password in its address.
            let file = args.redis_password_file.clone().filter(|_| named.is_some());
            redis::check(&url, RedisAddress::from(url.as_str()).with_password_file(file)).await
        }
    };
    if nothing_runs {
        let hint = "start a cluster with `syncline up`, or name an engine with --engine";
        findings.push(Finding::warn("engine", "no cluster runs on this state directory", hint));
    } else {
        findings.extend(engines(connection, args.transport).await);
    }
    findings
}

/// Each engine that was named, and what the one that leads knows. Causes come before what follows from them.
async fn engines(connection: &ConnectionArgs, transport: TransportChoice) -> Vec<Finding> {
    let cluster = match connection.find() {
        Ok(cluster) => cluster,
        Err(failure) => {
            return vec![Finding::fail("engine", failure.exit(), failure.to_string(), failure.hint())];
        }
    };
    let asked = ask_each(&cluster).await;
    // One that is cut off from Redis does not know yet that another has followed it.
    let newest = asked.iter().flatten().filter_map(|(_, about)| about.epoch).max();
    let leads = |about: &EngineStatus| about.epoch.is_some() && about.epoch == newest;
    let (mut answers, mut leading) = (Vec::new(), None);
    for answer in asked {
        answers.push(answer.map(|(client, about)| {
            if leads(&about) {
                leading = Some(client);
            }
            about
        }));
    }
    let active = answers.iter().flatten().find(|about| leads(about));
    let named = &cluster.engines;
    let mut findings: Vec<Finding> = answers.iter().map(|one| engine(one, named, active.is_some())).collect();
    findings.extend(two_leaders(answers.iter().flatten()));
    if let Some(active) = active {
        findings.splice(0..0, store_problem(active));
        findings.push(shards(active));
        findings.extend(standbys(active));
        findings.extend(shard_disks(active));
        if let Some(client) = leading.filter(|_| active.shards_present == active.shards) {
            findings.push(transports::check(&client, cluster.token, transport).await);
        }
        findings.push(workers(active));
    }
    findings
}

/// One engine of those that were named. Where another of them leads, one that stands by is as it should be.
fn engine(answers: &Result<EngineStatus, Failure>, named: &EngineAddresses, led: bool) -> Finding {
    let about = match answers {
        Ok(about) => about,
        Err(failure) if led => {
            let hint = "another one leads; start this one again, to have a standby";
            return Finding::warn("engine", failure.to_string(), hint);
        }
        Err(failure) => return Finding::fail("engine", failure.exit(), failure.to_string(), failure.hint()),
    };
    let (theirs, ours) = (&about.version, env!("CARGO_PKG_VERSION"));
    let found = format!("{theirs} at {}, instance {}", about.address, about.instance);
    if theirs != ours {
        return Finding::warn("engine", found, format!("this is {ours}; use the same release everywhere"));
    }
    let Some(idle) = &about.idle else {
        return match (named.count() > 1, &about.store_problem) {
            (false, _) => Finding::ok("engine", found),
            (true, None) => Finding::ok("engine", format!("{found}: it leads")),
            // Where it alone is cut off, another leads by now.
            (true, Some(problem)) => Finding::warn(
                "engine",
                format!("{found}: it led, and Redis does not do its part: {problem}"),
                "see that Redis can be reached from its machine",
            ),
        };
    };
    let idles = format!("{found}: {idle}");
    match &about.leader {
        Some(_) if led => Finding::ok("engine", idles),
        Some(leader) if is_of_every_machine(leader) => Finding::warn(
            "engine",
            idles,
            "the engine that leads listens on all addresses, and nobody knows by which of them it is reached from here: name it with --engine by one of its machine",
        ),
        Some(leader) => {
            let all: Vec<&str> =
                named.iter().filter(|address| address != leader).chain([&**leader]).collect();
            let hint = format!("name both, here and for every shard and worker: --engine {}", all.join(","));
            Finding::warn("engine", idles, hint)
        }
        None if about.load_steps.is_some() || about.redis_loaded_bytes.is_some() => {
            Finding::warn("engine", idles, "nothing needs to be done: it leads as soon as everything is read")
        }
        None if about.store_problem.as_deref().is_some_and(is_aof_failure) => {
            Finding::fail("engine", Exit::Redis, idles, AOF_HINT)
        }
        None if about.store_problem.is_some() => Finding::fail(
            "engine",
            Exit::Redis,
            idles,
            "see that Redis runs and takes writes, as `doctor --redis URL` tries; if its password was changed, write it into the file of --redis-password-file, or start the engine again with the new one",
        ),
        None => Finding::warn("engine", idles, "ask again in a few seconds"),
    }
}

/// Engines of one Redis database never lead at the same time.
fn two_leaders<'a>(answers: impl Iterator<Item = &'a EngineStatus>) -> Option<Finding> {
    let leads = |about: &&EngineStatus| about.epoch.is_some() && about.store_problem.is_none();
    let leading: Vec<&str> = answers.filter(leads).map(|about| about.address.as_str()).collect();
    (leading.len() > 1).then(|| {
        let found = format!("{} lead at the same time: they use different Redis servers or databases", leading.join(" and "));
        let hint = "give all engines the same --redis; if one has followed another a moment ago, ask again in a few seconds";
        Finding::fail("engines", Exit::Unreachable, found, hint)
    })
}

fn store_problem(about: &EngineStatus) -> Option<Finding> {
    let problem = about.store_problem.as_deref()?;
    let hint = match is_aof_failure(problem) {
        true => AOF_HINT,
        false => {
            "nothing is submitted and nothing is granted until Redis takes writes again; the engine keeps trying"
        }
    };
    Some(Finding::fail("redis writes", Exit::Redis, problem, hint))
}

fn shards(about: &EngineStatus) -> Finding {
    let (present, expected) = (about.shards_present, about.shards);
    let found = format!("{present} of {expected}");
    let problem = about.shard_problem.as_deref().unwrap_or_default();
    if problem.is_empty() && present == expected {
        return Finding::ok("shards", found);
    }
    let stop = about.shards_stopping > 0;
    // One may have gone between the two looks of the engine.
    let miss = about.shards_missing > 0 || (present != expected && !stop);
    let hints = [
        (
            stop,
            "leave the process that stops alone: it has what its jobs have trained, and ends once that is on its disk; its log says more",
        ),
        (miss, "start the missing `syncline ps` processes; they name this engine with --engine"),
        (
            about.shards_unreached > 0,
            "see whether the process that is silent or not reached is stopped or cut off; its jobs wait for it",
        ),
    ];
    let hint =
        hints.iter().filter_map(|(is_so, hint)| is_so.then_some(*hint)).collect::<Vec<_>>().join("; and ");
    let found = format!("{found}; {problem}");
    match stop || miss {
        true => Finding::fail("shards", Exit::Unreachable, found, hint),
        false => Finding::warn("shards", found, hint),
    }
}

fn standbys(about: &EngineStatus) -> Option<Finding> {
    let problem = about.standby_problem.as_deref()?;
    let hint = "jobs go on; if that shard were lost now, they would wait for it or fail: start its second `syncline ps --replicas 2`, or see the log of that one";
    Some(Finding::warn("standbys", problem, hint))
}

fn shard_disks(about: &EngineStatus) -> Option<Finding> {
    let problem = about.disk_problem.as_deref()?;
    let hint = "make room there, or mend the disk: checkpoints, snapshots and values of tasks wait for it; `syncline gc` removes what nobody needs";
    Some(Finding::warn("shard disks", problem, hint))
}

fn workers(about: &EngineStatus) -> Finding {
    match about.workers {
        0 => Finding::warn("workers", "none", "jobs wait until a worker is there: start `syncline worker`"),
        n => Finding::ok("workers", n.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Verdict;

    const STANDBY: [(&str, &str); 2] = [("idle", "it is on standby"), ("leader", "10.0.0.2:7461")];

    /// What an engine says about itself.
    fn status(more: &[(&str, &str)]) -> EngineStatus {
        let about = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("address", "10.0.0.1:7461"),
            ("instance", "b"),
            ("redis", "redis://r"),
            ("shards", "2"),
        ];
        let fields = about.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        EngineStatus::read(&fields.collect()).unwrap()
    }

    #[test]
    fn of_two_engines_it_is_said_which_leads() {
        let said = |more: &[_], named: &str| engine(&Ok(status(more)), &named.parse().unwrap(), true).found;
        let both = "10.0.0.1:7461,10.0.0.2:7461";
        assert!(said(&[("epoch", "7")], both).ends_with("instance b: it leads"));
        assert!(said(&STANDBY, both).ends_with("instance b: it is on standby"));
        let cut_off = [("epoch", "7"), ("store_problem", "no answer")];
        assert!(said(&cut_off, both).ends_with("it led, and Redis does not do its part: no answer"));
        assert!(said(&[("epoch", "7")], "10.0.0.1:7461").ends_with("instance b"));
    }

    #[test]
    fn a_redis_whose_append_only_file_failed_is_told_with_what_helps() {
        let problem = "[E201] redis does not do `renew the lease` for now: MISCONF Errors writing to the AOF file: Input/output error";
        let leads = store_problem(&status(&[("epoch", "7"), ("store_problem", problem)])).unwrap();
        let idle = status(&[("idle", "Redis does not let it lead"), ("store_problem", problem)]);
        let waits = engine(&Ok(idle), &"10.0.0.1:7461".parse().unwrap(), false);
        for Finding { hint, .. } in [leads, waits] {
            assert!(hint.contains("redis-cli BGREWRITEAOF"), "{hint}");
        }
        let away = store_problem(&status(&[("epoch", "7"), ("store_problem", "no answer")])).unwrap();
        assert!(!away.hint.contains("BGREWRITEAOF"), "{}", away.hint);
    }

    #[test]
    fn whoever_names_the_standby_alone_is_told_what_to_type() {
        let finding = engine(&Ok(status(&STANDBY)), &"10.0.0.1:7461".parse().unwrap(), false);
        assert_eq!(finding.verdict, Verdict::Warn);
        assert!(finding.hint.ends_with(" --engine 10.0.0.1:7461,10.0.0.2:7461"), "{}", finding.hint);
    }

    #[test]
    fn a_leader_that_listens_on_all_addresses_is_not_named_by_them() {
        let standby = [("idle", "it is on standby"), ("leader", "0.0.0.0:7461")];
        let finding = engine(&Ok(status(&standby)), &"10.0.0.1:7461".parse().unwrap(), false);
        assert!(
            finding.hint.starts_with("the engine that leads listens on all addresses"),
            "{}",
            finding.hint
        );
    }

    #[test]
    fn two_engines_that_lead_at_the_same_time_do_not_share_a_redis() {
        let (leads, stands_by) = (status(&[("epoch", "7")]), status(&STANDBY));
        let cut_off = status(&[("epoch", "6"), ("store_problem", "no answer")]);
        for fine in [vec![&leads], vec![&leads, &stands_by], vec![&leads, &cut_off]] {
            assert!(two_leaders(fine.into_iter()).is_none());
        }
        let finding = two_leaders([&leads, &leads].into_iter()).unwrap();
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.found.starts_with("10.0.0.1:7461 and 10.0.0.1:7461 lead"), "{}", finding.found);
    }

    #[test]
    fn jobs_wait_for_a_silent_shard_and_not_for_a_standby_that_is_missing() {
        let all = [("shards_present", "2"), ("shard_problem", "s0 is silent"), ("shards_unreached", "1")];
        let silent = shards(&status(&all));
        assert_eq!(silent.verdict, Verdict::Warn);
        assert!(silent.hint.contains("its jobs wait for it"), "{}", silent.hint);
        let all = [("shards_present", "2"), ("standby_problem", "s0 has no standby")];
        let alone = status(&all);
        assert_eq!(shards(&alone).verdict, Verdict::Ok);
        let finding = standbys(&alone).unwrap();
        assert_eq!((finding.verdict, &*finding.found), (Verdict::Warn, "s0 has no standby"));
        assert!(finding.hint.starts_with("jobs go on"), "{}", finding.hint);
    }

    #[test]
    fn each_kind_of_trouble_with_shards_has_its_hint() {
        const HINTS: [&str; 3] =
            ["leave the process that stops alone", "start the missing", "stopped or cut off"];
        let of = |present, stopping, missing, unreached| {
            let fields = [
                ("shards_present", present),
                ("shard_problem", "told of each"),
                ("shards_stopping", stopping),
                ("shards_missing", missing),
                ("shards_unreached", unreached),
            ];
            let finding = shards(&status(&fields));
            (finding.verdict, HINTS.map(|hint| finding.hint.contains(hint)))
        };
        assert_eq!(of("1", "1", "0", "0"), (Verdict::Fail, [true, false, false]));
        assert_eq!(of("1", "0", "1", "0"), (Verdict::Fail, [false, true, false]));
        assert_eq!(of("0", "1", "1", "0"), (Verdict::Fail, [true, true, false]));
        assert_eq!(of("0", "1", "1", "1"), (Verdict::Fail, [true, true, true]));
        assert_eq!(of("2", "0", "0", "1"), (Verdict::Warn, [false, false, true]));
    }

    #[test]
    fn a_shard_with_a_full_disk_is_a_warning() {
        assert!(shard_disks(&status(&[("disk_problem", "")])).is_none());
        let finding = shard_disks(&status(&[("disk_problem", "s0 has 5 MB free")])).unwrap();
        assert_eq!((finding.verdict, &*finding.found), (Verdict::Warn, "s0 has 5 MB free"));
    }
}
