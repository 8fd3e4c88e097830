//! A simulation in words and tables.

use syncline_scheduler::sim::Outcome;

use crate::cli::table;

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// One policy, with its workers and its staleness.
pub(crate) fn one(run: &Outcome) -> String {
    let mut lines = vec![side_by_side(std::slice::from_ref(run)), String::new()];
    let columns =
        [">worker", ">iterations", ">waiting %", ">batch", ">prediction rmse ms", ">prediction bias ms"];
    let rows: Vec<Vec<String>> = run
        .per_worker
        .iter()
        .map(|w| {
            vec![
                w.worker.to_string(),
                w.pushes.to_string(),
                percent(w.waiting_fraction),
                w.batch.to_string(),
                format!("{:.2}", w.prediction_rmse_ms),
                format!("{:+.2}", w.prediction_bias_ms),
            ]
        })
        .collect();
    lines.push(table(&columns, &rows));
    if run.rules.len() > 1 {
        let rules: Vec<String> = run.rules.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
        lines.push(format!("\nsupersteps by rule: {}", rules.join(", ")));
    }
    lines.push(format!("\nstaleness (updates of others between pull and push)\n{}", histogram(run)));
    lines.join("\n")
}

/// Bars of at most 40 characters.
fn histogram(run: &Outcome) -> String {
    let counts = &run.staleness_histogram;
    let last = counts.iter().rposition(|n| *n > 0).unwrap_or(0);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let line = |(staleness, n): (usize, &u64)| {
        let name =
            if staleness + 1 == counts.len() { format!("{staleness}+") } else { staleness.to_string() };
        let bar = "#".repeat((n * 40 / most) as usize);
        format!("{name:>4}  {:>5.1} %  {bar}", *n as f64 / run.pushes.max(1) as f64 * 100.0)
    };
    counts.iter().enumerate().take(last + 1).map(line).collect::<Vec<_>>().join("\n")
}

/// One row a policy.
pub(crate) fn side_by_side(runs: &[Outcome]) -> String {
    let columns = [
        "policy",
        ">iterations/s",
        ">samples/s",
        ">waiting %",
        ">max lead",
        ">mean staleness",
        ">barriers",
        ">superstep ms",
        ">replanned",
        ">prediction rmse ms",
    ];
    let row = |run: &Outcome| {
        vec![
            run.policy.clone(),
            format!("{:.2}", run.pushes_per_s),
            format!("{:.0}", run.samples_per_s),
            percent(run.waiting_fraction),
            run.max_lead.to_string(),
            format!("{:.2}", run.mean_staleness),
            run.barriers.to_string(),
            if run.barriers == 0 { "-".into() } else { format!("{:.0}", run.mean_superstep_ms) },
            run.replanned.to_string(),
            format!("{:.2}", run.prediction_rmse_ms),
        ]
    };
    table(&columns, &runs.iter().map(row).collect::<Vec<_>>())
}
