//! What a policy promises whatever the speeds are.

use super::{cluster::number, train_beside_others};

#[tokio::test(flavor = "multi_thread")]
async fn bsp_gives_everybody_one_iteration_a_round() {
    let trained = train_beside_others("bsp", 0.1, "'none'").await;
    assert!(trained.closed.iter().all(|e| number(e, "iterations_most") <= 1));
    assert!(number(&trained.summary, "max_lead") <= 1);
    assert_eq!(trained.staleness_max, 0, "all computed on the version of their round");
}

#[tokio::test(flavor = "multi_thread")]
async fn ssp_keeps_its_bound() {
    let trained = train_beside_others("ssp:3", 0.03, "'none'").await;
    // A push comes one iteration after the start that is bounded.
    let lead = number(&trained.summary, "max_lead");
    assert!((1..=4).contains(&lead), "lead {lead}");
    assert_eq!(trained.barriers(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_sgd_meets_after_its_steps() {
    let trained = train_beside_others("local-sgd:8", 0.1, "'none'").await;
    for event in &trained.closed {
        assert!(number(event, "iterations_most") <= 8, "{event:?}");
    }
    assert_eq!(trained.staleness_max, 0, "all began with the version of their round");
    // 40 epochs of 45 batches in rounds of four times eight, and a rest.
    assert!((50..=70).contains(&trained.barriers()), "{}", trained.barriers());
}

#[tokio::test(flavor = "multi_thread")]
async fn diloco_meets_after_its_steps() {
    let trained = train_beside_others("diloco:8", 0.02, "'none'").await;
    assert!(trained.closed.iter().all(|e| number(e, "iterations_most") <= 8));
}

/// Every compression, over pushes that are steps, joined to a mean of gradients, or to a mean of changes of
/// weights.
mod compressed {
    use super::train_beside_others;

    macro_rules! learns {
        ($($name:ident: $policy:expr, $rate:expr, $compression:expr;)*) => {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    train_beside_others($policy, $rate, $compression).await;
                }
            )*
        };
    }

    learns! {
        asp_learns_from_the_largest_of_gradients: "asp", 0.03, "{ top-k = 0.1 }";
        bsp_learns_from_gradients_in_eight_bits: "bsp", 0.1, "'int8'\npull_compression = 'fp16'";
        elastic_bsp_learns_from_gradients_in_sixteen_bits: "elastic-bsp:15", 0.03, "'fp16'\npull_compression = 'bf16'";
        lb_bsp_learns_from_gradients_in_bfloat16: "lb-bsp", 0.1, "'bf16'";
        local_sgd_learns_from_changes_in_eight_bits: "local-sgd:4", 0.1, "'int8'\npull_compression = 'fp16'";
        ssp_learns_while_each_worker_finds_out_whether_to_compress: "ssp:3", 0.03, "'auto'";
    }
}
