//! A picture of a run: workers as rows, iterations as boxes, waiting hatched, barriers as lines. SVG,
//! readable in any browser, good for a talk.

use std::fmt::Write;

use syncline_scheduler::sim::Outcome;

use crate::cli::support::svg::{
    BLUE, FAINT, INK, ORANGE, SKY_BLUE, VERMILION, background, line, opening, text,
};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 24.0;
const GAP: f64 = 7.0;
/// Above a panel's rows: its title. Below: room to the next one.
const TITLE: f64 = 34.0;
const FOOT: f64 = 22.0;
const HEAD: f64 = 46.0;
const AXIS: f64 = 50.0;

/// Draws runs of the same length below each other, each with the timeline it kept. `caption` heads the
/// picture.
pub(super) fn plot(caption: &str, runs: &[Outcome]) -> String {
    let until_us = runs.iter().map(|r| r.timeline.until_us).max().unwrap_or(1).max(1);
    let height = HEAD + runs.iter().map(panel_height).sum::<f64>() + AXIS;
    let x = |us: u64| LEFT + (WIDTH - LEFT - RIGHT) * us as f64 / until_us as f64;

    let mut svg = String::new();
    head(&mut svg, height, caption);
    let mut top = HEAD;
    for run in runs {
        panel(&mut svg, top, run, &x);
        top += panel_height(run);
    }
    axis(&mut svg, top, until_us, &x);
    line(&mut svg, "</svg>");
    svg
}

fn head(svg: &mut String, height: f64, caption: &str) {
    line(svg, &opening(WIDTH, height));
    line(
        svg,
        &format!(
            r#"<defs><pattern id="wait" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" fill="{}"/><rect width="2.2" height="7" fill="{ORANGE}"/></pattern></defs>"#,
            "#FFF6E0"
        ),
    );
    line(svg, &background(WIDTH, height));
    line(svg, &text(LEFT - 86.0, 28.0, 18.0, INK, "start", true, caption));
    legend(svg);
}

fn panel_height(run: &Outcome) -> f64 {
    TITLE + run.per_worker.len() as f64 * (ROW + GAP) + FOOT
}

/// One run: a row for each worker, its boxes, and the barriers across all rows.
fn panel(svg: &mut String, top: f64, run: &Outcome, x: &dyn Fn(u64) -> f64) {
    line(svg, &text(LEFT - 86.0, top + 20.0, 15.0, INK, "start", true, &run.policy));
    line(svg, &text(WIDTH - RIGHT, top + 20.0, 14.0, INK, "end", false, &figures(run)));
    let first = top + TITLE;
    let y = |worker: usize| first + worker as f64 * (ROW + GAP);
    for worker in 0..run.per_worker.len() {
        let label = format!("worker {}", worker + 1);
        line(svg, &text(LEFT - 12.0, y(worker) + ROW * 0.7, 13.0, INK, "end", false, &label));
        line(
            svg,
            &format!(
                r##"<rect x="{LEFT}" y="{:.1}" width="{:.1}" height="{ROW}" fill="#F2F2F2"/>"##,
                y(worker),
                WIDTH - LEFT - RIGHT
            ),
        );
    }
    boxes(svg, run, x, &y);
    let bottom = first + run.per_worker.len() as f64 * (ROW + GAP) - GAP;
    for &at_us in &run.timeline.barriers_us {
        let at = x(at_us);
        line(
            svg,
            &format!(
                r#"<line x1="{at:.2}" y1="{:.1}" x2="{at:.2}" y2="{:.1}" stroke="{VERMILION}" stroke-width="2"/>"#,
                first - 5.0,
                bottom + 5.0
            ),
        );
    }
}

/// Iterations and waits. All boxes of one kind are one path: a picture of a thousand iterations stays small.
fn boxes(svg: &mut String, run: &Outcome, x: &dyn Fn(u64) -> f64, y: &dyn Fn(usize) -> f64) {
    let mut odd = vec![false; run.per_worker.len()];
    let mut paths = [(BLUE, String::new()), (SKY_BLUE, String::new()), ("url(#wait)", String::new())];
    for bar in &run.timeline.bars {
        let (from, width) = (x(bar.start_us), x(bar.end_us) - x(bar.start_us));
        let kind = if bar.waiting {
            2
        } else {
            odd[bar.worker] = !odd[bar.worker];
            usize::from(!odd[bar.worker])
        };
        let _ = write!(paths[kind].1, "M{from:.1} {:.0}h{width:.1}v{ROW}h-{width:.1}z", y(bar.worker));
    }
    for (fill, path) in paths.iter().filter(|(_, path)| !path.is_empty()) {
        line(svg, &format!(r##"<path fill="{fill}" stroke="#FFFFFF" stroke-width="0.6" d="{path}"/>"##));
    }
}

fn figures(run: &Outcome) -> String {
    let barriers = match run.barriers {
        0 => "no barriers".to_owned(),
        n => format!("{n} barriers"),
    };
    format!(
        "waiting {:.1} %  \u{b7}  {:.0} samples/s  \u{b7}  lead {}  \u{b7}  {barriers} in {} s",
        run.waiting_fraction * 100.0,
        run.samples_per_s,
        run.max_lead,
        run.duration_s
    )
}

fn legend(svg: &mut String) {
    let entries = [("iteration", BLUE), ("next one", SKY_BLUE), ("waiting", "url(#wait)")];
    let mut x = WIDTH - RIGHT - 430.0;
    for (name, fill) in entries {
        line(
            svg,
            &format!(
                r#"<rect x="{x}" y="15" width="22" height="14" fill="{fill}" stroke="{FAINT}" stroke-width="0.5"/>"#
            ),
        );
        line(svg, &text(x + 28.0, 27.0, 13.0, INK, "start", false, name));
        x += 112.0;
    }
    line(
        svg,
        &format!(
            r#"<line x1="{0}" y1="13" x2="{0}" y2="31" stroke="{VERMILION}" stroke-width="2"/>"#,
            x + 8.0
        ),
    );
    line(svg, &text(x + 18.0, 27.0, 13.0, INK, "start", false, "barrier"));
}

/// A scale in round numbers, about ten of them.
fn axis(svg: &mut String, top: f64, until_us: u64, x: &impl Fn(u64) -> f64) {
    let rough = until_us as f64 / 10.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
    let step_us = (step as u64).max(1);
    let (unit, per_unit) = if until_us >= 10_000_000 { ("s", 1e6) } else { ("ms", 1e3) };
    let mut marks = String::new();
    for at_us in (0..=until_us).step_by(step_us as usize) {
        let at = x(at_us);
        let _ = writeln!(
            marks,
            r#"<line x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}" stroke="{FAINT}"/>"#,
            top - 8.0,
            top - 2.0
        );
        let label = format!("{}", at_us as f64 / per_unit);
        line(&mut marks, &text(at, top + 14.0, 13.0, INK, "middle", false, &label));
    }
    svg.push_str(&marks);
    line(svg, &text(x(until_us), top + 34.0, 13.0, FAINT, "end", false, &format!("time in {unit}")));
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        sim::{Scenario, WorkerModel, simulate},
        spec::PolicySpec,
    };

    use super::*;

    #[test]
    fn every_iteration_wait_and_barrier_of_the_window_is_drawn() {
        let mut workers = vec![WorkerModel::steady(100_000); 3];
        workers.push(WorkerModel::steady(200_000));
        let scenario = Scenario {
            policy: "bsp".parse::<PolicySpec>().unwrap(),
            workers,
            batch: 32,
            duration_us: 2_000_000,
            seed: 0,
        };
        let run = simulate(&scenario, 1_000_000).unwrap();
        let svg = plot("a <b> & c", &[run]);
        // Five rounds begin in the first second: 4 boxes each and 3 waits; the barrier at 1 s lies on the
        // edge.
        assert_eq!(svg.matches("v24h-").count(), 5 * 7);
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 4 + 1, "four barriers and the legend");
        assert!(svg.contains("a &lt;b&gt; &amp; c") && svg.contains("waiting 37.5 %"));
        // Well-formed: what opens closes, and nothing else.
        let opened = svg.matches('<').count() - svg.matches("</").count();
        let closed = svg.matches("/>").count() + svg.matches("</").count();
        assert_eq!(opened, closed);
        assert!(svg.trim_end().ends_with("</svg>"));
    }
}
