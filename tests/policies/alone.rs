//! What a policy makes of workers of different speed.

use super::{BATCH, Fields, Trained, cluster::number, train_alone};

#[tokio::test(flavor = "multi_thread")]
async fn asp_meets_only_at_the_end() {
    let trained = train_alone("asp", 0.03).await;
    assert_eq!(trained.barriers(), 1);
    assert!(trained.staleness_max > 0, "each push is a step, and others push meanwhile");
    // The slow worker is named.
    let slow = |event: &Fields| event["what"] == "worker_slow" && event["name"] == "w3";
    assert!(trained.events.iter().any(slow), "{:?}", trained.events);
}

#[tokio::test(flavor = "multi_thread")]
async fn dssp_keeps_its_upper_bound_and_uses_more_than_its_lower_one() {
    let trained = train_alone("dssp:3:15", 0.03).await;
    let lead = number(&trained.summary, "max_lead");
    assert!((5..=16).contains(&lead), "lead {lead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_bsp_meets_where_it_planned() {
    let trained = train_alone("elastic-bsp:15", 0.03).await;
    assert!((5..300).contains(&trained.barriers()), "{}", trained.barriers());
    assert!(
        trained.closed.iter().any(|e| number(e, "iterations_most") > number(e, "iterations_least")),
        "workers of different speed do different numbers of iterations"
    );
    // From the end of watching on nobody goes further than the R predicted iterations.
    let planned = trained.spans.iter().filter(|s| !s["predicted"].as_array().unwrap().is_empty());
    let mut checked = 0;
    for span in planned {
        for row in span["predicted"].as_array().unwrap() {
            let (first, count) = (row["first_seq"].as_u64(), row["points"]["count"].as_u64());
            let last = span["roster"][row["worker"].to_string()]["last"].as_u64().unwrap();
            assert!(count <= Some(15) && last < first.unwrap() + count.unwrap(), "{span}");
            checked += 1;
        }
    }
    assert!(checked > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lb_bsp_gives_the_slow_worker_a_smaller_batch() {
    let trained = train_alone("lb-bsp+predictor=ema:0.2", 0.1).await;
    assert!(trained.closed.iter().all(|e| number(e, "iterations_most") <= 1));
    check_batches(&trained);
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_lb_meets_elastically_with_batches_by_speed() {
    let trained = train_alone("elastic-lb+predictor=ema:0.2", 0.03).await;
    assert!((5..300).contains(&trained.barriers()), "{}", trained.barriers());
    check_batches(&trained);
}

/// The total stays, and the slow worker's share is well below the others'.
fn check_batches(trained: &Trained) {
    let batches = trained.batches();
    assert!(batches.iter().all(|(_, all)| *all == 4 * BATCH), "{batches:?}");
    let smaller = batches.iter().filter(|(slow, _)| *slow < BATCH * 3 / 4).count();
    assert!(smaller * 2 > batches.len(), "{batches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_says_why_and_settles_on_something_that_suits_a_slow_worker() {
    let trained = train_alone("auto+predictor=ema:0.2", 0.03).await;
    let rules: Vec<&str> = trained.closed.iter().map(|e| e["rule"].as_str()).collect();
    println!("{rules:?}");
    assert!(rules.contains(&"elastic-lb") || rules.contains(&"elastic-bsp"), "{rules:?}");
    for span in &trained.spans {
        assert!(!span["why"]["reason"].as_str().unwrap().is_empty());
        assert!(span["why"]["figures"]["bsp_wait_share"].is_number() || span["why"]["rule"] == "elastic-bsp");
    }
}
