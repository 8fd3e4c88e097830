//! A shard that is stopped cleanly goes on with its jobs, exactly where they stood.

use std::{collections::BTreeSet, fs, io::Write, os::unix::fs::PermissionsExt};

use super::rig::{EPOCH, FIRST, ROUND, Rig, UNIT, job, look, options, run};
use syncline_ps::{
    codec::Codec,
    server::{self, Options},
    shard::{PushHeader, ReadCondition},
    transport::Channel,
    wire::{Reply, Request, SessionKey},
};
use syncline_rpc::{HeldJob, OpenJob, ShardFault};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, RunId},
    spec::{ElementRange, Optimizer},
};

use crate::waiting::until;

/// Three chunks and a bit on each of two shards.
const ELEMENTS: u64 = 6 * 65_536 + 2000;

fn gradient(n: u64) -> Vec<f32> {
    (0..ELEMENTS).map(|i| ((i * 31 + n * 17) % 97) as f32 / 50.0 - 1.0).collect()
}

/// Sends the first chunk of a push to shard 0 and breaks off.
fn begin_push(rig: &Rig, worker: u64, seq: u64, values: &[f32]) {
    let mut stream = rig.channel(0);
    let session = SessionKey { run: run(FIRST), incarnation: Incarnation(worker) };
    let mut head = Vec::new();
    let whole = &values[..ElementRange::of_shard(ELEMENTS, 0, 2).end as usize];
    let request =
        Request::Push { session: session.clone(), seq, first_chunk: 0, header: UNIT, codec: Codec::Plain };
    request.encode(size_of_val(whole) as u64, &mut head);
    stream.write_all(&head).unwrap();
    for x in &whole[..65_536] {
        stream.write_all(&x.to_le_bytes()).unwrap();
    }
    drop(stream);
    let cursor = || {
        let mut stream = rig.channel(0);
        let mut out = Vec::new();
        Request::PushCursor { session: session.clone() }.encode(0, &mut out);
        stream.write_all(&out).unwrap();
        Reply::read(&mut stream, &mut out).unwrap().0
    };
    until("the chunk is in", || matches!(cursor(), Reply::PushCursor(p) if p.next_chunk == 1));
}

/// A history with something of everything in it; `pause` comes in the middle.
fn history(rig: &mut Rig, pause: impl FnOnce(&mut Rig)) -> Vec<f32> {
    let adam =
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
    let initial = rig.blob(&gradient(0));
    for opened in rig.open(FIRST, ELEMENTS, adam, &initial) {
        opened.unwrap();
    }
    let rate = PushHeader { learning_rate: 0.1, ..UNIT };
    let joins = PushHeader { learning_rate: 0.1, weight: 3.0, ..ROUND };
    rig.clocks(3, &[(1, 5), (2, 5), (3, 0)]);
    rig.barrier(0, 0, &[(1, 1)], true);
    rig.barrier(1, 0, &[(1, 2), (2, 2)], false);
    rig.worker(1, ELEMENTS).push(1, rate, &[&gradient(1)]).unwrap();
    rig.worker(2, ELEMENTS).push(1, rate, &[&gradient(2)]).unwrap();
    // One half of a round, a push that has begun, one that was dropped.
    rig.worker(1, ELEMENTS).push(2, joins, &[&gradient(3)]).unwrap();
    begin_push(rig, 4, 1, &gradient(4));
    rig.worker(3, ELEMENTS).push(1, rate, &[&gradient(5)]).unwrap();
    for shard in 0..2 {
        assert_eq!(rig.seal(shard, 3).watermark, 1);
    }
    let before: Vec<_> = (0..2).map(|shard| rig.state(shard)).collect();

    pause(rig);

    assert_eq!((0..2).map(|shard| rig.state(shard)).collect::<Vec<_>>(), before);
    assert_eq!(rig.seal(0, 3).watermark, 1);
    assert_eq!(rig.worker(3, ELEMENTS).push(2, rate, &[&gradient(5)]).unwrap_err().code(), "E408");
    let mut values = vec![0.0; ELEMENTS as usize];
    rig.worker(9, ELEMENTS).pull(ReadCondition::Pinned(1), &mut values).unwrap();
    let pinned = values.clone();
    // The begun push goes on with its second chunk; one that is in counts as a duplicate.
    assert_eq!(rig.worker(4, ELEMENTS).push(1, UNIT, &[&gradient(4)]).unwrap().pushes, 5);
    assert_eq!(rig.worker(2, ELEMENTS).push(1, rate, &[&gradient(2)]).unwrap().pushes, 5);
    assert_eq!(rig.state(0).progress.closed, 1);
    let pushed = rig.worker(2, ELEMENTS).push(2, joins, &[&gradient(6)]).unwrap();
    assert_eq!((pushed.pushes, pushed.lead), (6, 0), "w1 stands at 7 as well");
    assert_eq!((rig.state(0).progress.closed, rig.state(1).progress.closed), (2, 2));
    rig.worker(1, ELEMENTS).push(3, rate, &[&gradient(7)]).unwrap();
    [look(rig, ELEMENTS), pinned].concat()
}

#[test]
fn a_job_that_was_stopped_in_the_middle_ends_in_the_same_bits() {
    let unbroken = history(&mut Rig::start(2), |_| {});
    let stopped = history(&mut Rig::start(2), Rig::restart);
    assert!(stopped == unbroken);
    let twice = history(&mut Rig::start(2), |rig| {
        rig.restart();
        rig.restart();
    });
    assert!(twice == unbroken);
}

#[test]
fn a_job_that_has_gone_on_since_is_not_found_again() {
    let mut rig = Rig::with_job(2, 100);
    rig.restart();
    rig.worker(1, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
    let places: Vec<_> = rig.shards.iter().map(|s| s.address()).collect();
    // As a crash does it: nothing is kept.
    std::mem::take(&mut rig.shards).into_iter().for_each(|shard| shard.stop());
    rig.start_again(&places);
    assert_eq!(rig.attach(0, EPOCH), Ok(None));
    let files = fs::read_dir(rig.dir.path().join("0/jobs")).unwrap().count();
    assert_eq!(files, 0);
}

#[test]
fn a_closed_job_is_not_kept_and_an_engine_of_the_past_stays_out() {
    let mut rig = Rig::with_job(1, 100);
    rig.attach(0, EngineEpoch(7)).unwrap();
    rig.restart();
    assert!(matches!(rig.attach(0, EPOCH), Err(ShardFault::Fenced { .. })));
    let mut rig = Rig::with_job(1, 100);
    rig.close();
    rig.restart();
    assert_eq!(rig.attach(0, EPOCH), Ok(None));
}

#[test]
fn a_damaged_job_is_set_aside_and_the_shard_starts() {
    for harm in [0, 40, 4000] {
        let mut rig = Rig::with_job(1, 1000);
        let places: Vec<_> = rig.shards.iter().map(|s| s.address()).collect();
        std::mem::take(&mut rig.shards).into_iter().for_each(|s| drop(s.stop_and_save(|_| false).unwrap()));
        let path = rig.dir.path().join("0/jobs/digits.job");
        let mut bytes = fs::read(&path).unwrap();
        bytes[harm] ^= 1;
        if harm == 40 {
            bytes.truncate(100);
        }
        fs::write(&path, bytes).unwrap();
        rig.start_again(&places);
        assert_eq!(rig.attach(0, EPOCH), Ok(None));
        assert!(path.with_extension("damaged").exists() && !path.exists());
    }
}

#[test]
fn a_job_of_another_shard_or_number_of_shards_stays_until_its_own_shard_comes() {
    let mut rig = Rig::with_job(2, 1000);
    rig.worker(1, 1000).push(1, UNIT, &[&[1.0; 1000]]).unwrap();
    let places: Vec<_> = rig.shards.iter().map(|s| s.address()).collect();
    std::mem::take(&mut rig.shards).into_iter().for_each(|s| drop(s.stop_and_save(|_| false).unwrap()));
    let path = rig.dir.path().join("0/jobs/digits.job");
    let bytes = fs::read(&path).unwrap();
    for (index, count) in [(0, 1), (0, 4), (1, 2)] {
        let wrong = Options { index, count, ..options(&rig.token, rig.dir.path(), places[0], 0, 2) };
        let error = server::start(wrong).err().unwrap();
        assert_eq!(error.code(), "E427");
        assert!(error.to_string().contains("a job of shard 0/2"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "as {index} of {count}");
    }
    rig.start_again(&places);
    assert_eq!(look(&rig, 1000), vec![-1.0; 1000]);
}

/// The engine that comes after the one whose Redis did not know the job.
const NEXT: EngineEpoch = EngineEpoch(EPOCH.0 + 1);

#[test]
fn a_job_that_was_served_and_that_the_next_engine_does_not_know_goes_on_with_one_that_does_after_a_start_or_without()
 {
    for starts_again in [false, true] {
        let mut rig = Rig::with_job(2, 1000);
        rig.worker(1, 1000).push(1, UNIT, &[&[1.0; 1000]]).unwrap();
        // The order may come again.
        (0..2).for_each(|_| rig.set_aside());
        if starts_again {
            rig.restart();
            rig.set_aside();
        }
        assert_eq!(rig.held(0, NEXT), [HeldJob { run: run(FIRST), closed: false }]);
        for shard in 0..2 {
            assert_eq!(rig.attach(shard, NEXT).unwrap().unwrap().pushes, 1, "starts again: {starts_again}");
        }
        assert_eq!(look(&rig, 1000), vec![-1.0; 1000]);
        rig.worker(1, 1000).push(2, UNIT, &[&[1.0; 1000]]).unwrap();
        // One that is over is gone.
        rig.close_under(NEXT);
        rig.restart();
        assert!(rig.dir.path().join("0/jobs").read_dir().unwrap().next().is_none());
    }
}

/// A worker that is told that a job is over drops its task, and nobody gives it another: the engine believes
/// that it has one.
#[test]
fn who_asks_for_a_job_that_is_set_aside_is_hung_up_on_until_an_engine_has_asked_for_it() {
    let rig = Rig::with_job(1, 100);
    let session = SessionKey { run: run(FIRST), incarnation: Incarnation(1) };
    let ask = |request: &Request| {
        let (mut stream, mut out) = (rig.channel(0), Vec::new());
        request.encode(0, &mut out);
        stream.write_all(&out).unwrap();
        stream
    };
    let answer = |mut stream: Channel| {
        let mut scratch = Vec::new();
        loop {
            match Reply::read(&mut stream, &mut scratch) {
                Ok((Reply::Waiting, _)) => {}
                Ok((reply, _)) => return Some(reply),
                Err(_) => return None,
            }
        }
    };
    let condition = ReadCondition::version(1);
    let mut waits = ask(&Request::Pull { session: session.clone(), condition, codec: Codec::Plain });
    assert_eq!(Reply::read(&mut waits, &mut Vec::new()).unwrap().0, Reply::Waiting);
    rig.set_aside();
    assert_eq!(answer(waits), None);
    let cursor = Request::PushCursor { session };
    assert_eq!(answer(ask(&cursor)), None);
    rig.attach(0, NEXT).unwrap().unwrap();
    assert!(matches!(answer(ask(&cursor)), Some(Reply::PushCursor(_))));
}

#[test]
fn two_jobs_of_one_name_that_no_engine_knew_are_found_by_those_that_do_whatever_is_opened_and_started_between()
 {
    for starts_again in [false, true] {
        let mut rig = Rig::with_job(1, 100);
        rig.worker(1, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
        // Submitted to an engine that has not said yet that it does not know the first one.
        let second = run(Generation::first(9));
        let order = OpenJob { run: second.clone(), ..rig.order(0, 100, &rig.blob(&[5.0; 100])) };
        rig.open_one(NEXT, order).unwrap();
        let held = |rig: &Rig, epoch| {
            let runs = rig.held(0, epoch).into_iter().filter(|held| !held.closed).map(|held| held.run);
            runs.collect::<BTreeSet<_>>()
        };
        let both = BTreeSet::from([run(FIRST), second.clone()]);
        assert_eq!(held(&rig, NEXT), both);
        if starts_again {
            rig.restart();
        }
        for (epoch, wanted, values) in [
            (EngineEpoch(EPOCH.0 + 2), run(FIRST), -1.0),
            (EngineEpoch(EPOCH.0 + 3), second, 5.0),
            (EngineEpoch(EPOCH.0 + 4), run(FIRST), -1.0),
        ] {
            let found = rig.attach_run(0, epoch, wanted.clone()).unwrap().unwrap();
            assert_eq!(found.generation, wanted.generation);
            let mut there = [f32::NAN; 100];
            let mut worker = rig.worker_of(wanted.generation, 7, 100);
            worker.pull(ReadCondition::version(0), &mut there).unwrap();
            assert_eq!((there, held(&rig, epoch)), ([values; 100], both.clone()), "{starts_again}");
        }
    }
}

#[test]
fn a_job_that_cannot_be_written_down_is_named_and_the_others_are_kept() {
    let mut rig = Rig::with_job(1, 100);
    let second = OpenJob {
        run: RunId { job: "letters".parse().unwrap(), ..run(FIRST) },
        ..rig.order(0, 100, &rig.blob(&[1.0; 100]))
    };
    rig.open_one(EPOCH, second).unwrap();
    // A directory stands where the file should be written.
    fs::create_dir(rig.dir.path().join("0/jobs/digits.job")).unwrap();
    let error = rig.shards.remove(0).stop_and_save(|_| false).unwrap_err();
    assert_eq!(error.code(), "E419");
    assert!(error.to_string().contains("digits") && error.to_string().contains("jobs"), "{error}");
    assert!(rig.dir.path().join("0/jobs/letters.job").exists());
}

#[test]
fn a_job_is_tried_until_it_can_be_kept_and_leaves_nothing_unfinished() {
    let mut rig = Rig::with_job(1, 100);
    let places: Vec<_> = rig.shards.iter().map(|s| s.address()).collect();
    rig.worker(1, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
    let in_the_way = rig.dir.path().join("0/jobs/digits.job");
    fs::create_dir(&in_the_way).unwrap();
    let mut said = Vec::new();
    let kept = rig.shards.remove(0).stop_and_save(|error| {
        said.push(error.code());
        if said.len() == 3 {
            fs::remove_dir(&in_the_way).unwrap();
        }
        true
    });
    assert_eq!((kept.unwrap(), said), (vec![job()], vec!["E428"; 3]));
    assert_eq!(fs::read_dir(rig.dir.path().join("0/jobs")).unwrap().count(), 1);
    rig.start_again(&places);
    assert_eq!(look(&rig, 100), vec![-1.0; 100]);
}

#[test]
fn a_state_directory_that_was_removed_is_made_again_for_its_owner_alone() {
    let mut rig = Rig::with_job(1, 100);
    let places: Vec<_> = rig.shards.iter().map(|s| s.address()).collect();
    let state = rig.dir.path().join("0");
    let lose = || fs::remove_dir_all(&state).unwrap();
    lose();
    assert_eq!(rig.collect(0, &[], 0), Ok(Default::default()));
    let digest = rig.blob(&[1.0; 100]);
    assert!(rig.blob_path(0, digest).exists());
    lose();
    std::mem::take(&mut rig.shards).into_iter().for_each(|s| drop(s.stop_and_save(|_| false).unwrap()));
    for folder in ["", "jobs"] {
        let mode = fs::metadata(state.join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
    rig.start_again(&places);
    assert_eq!(look(&rig, 100), vec![0.0; 100]);
}

#[test]
fn one_process_has_a_state_directory() {
    let rig = Rig::start(1);
    let again = options(&rig.token, rig.dir.path(), ([127, 0, 0, 1], 0).into(), 0, 1);
    assert_eq!(server::start(again).err().unwrap().code(), "E421");
}
