//! Draws losses over samples or over time, with a line for each training.

use super::{
    axis::Axis,
    curve::{Curve, Losses, Over},
    legend::{Entry, Legend, Mark},
};
use crate::cli::{
    jobs::metrics::Training,
    support::svg::{BLUE, CURVES, FAINT, INK, VERMILION, background, line, opening, text},
};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 30.0;
/// Where the legend begins, and how much room is between it and the curves.
const LEGEND: f64 = 42.0;
const LEGEND_GAP: f64 = 16.0;
const CURVES_HEIGHT: f64 = 340.0;
const BOTTOM: f64 = 56.0;

/// For trainings beyond the last color: the colors come again, dashed.
const DASHES: [Option<&str>; 4] = [None, Some("9 4"), Some("3 3"), Some("12 3 3 3")];

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stroke {
    pub(super) color: &'static str,
    dashes: Option<&'static str>,
}

impl Stroke {
    fn plain(color: &'static str) -> Self {
        Self { color, dashes: None }
    }

    /// Of the nth of several trainings.
    fn nth(n: usize) -> Self {
        Self { color: CURVES[n % CURVES.len()], dashes: DASHES[n / CURVES.len() % DASHES.len()] }
    }

    pub(super) fn attributes(self) -> String {
        let dashes = self.dashes.map_or(String::new(), |dashes| format!(r#" stroke-dasharray="{dashes}""#));
        format!(r#"fill="none" stroke="{}" stroke-width="1.6" stroke-linejoin="round"{dashes}"#, self.color)
    }
}

/// Draws what trainings have told of themselves. Losses that are not finite leave a gap.
pub(crate) fn of_trainings(trainings: &[Training], over: Over) -> String {
    let curves: Vec<Curve> = trainings.iter().map(|training| Curve::of(training, over)).collect();
    draw(&curves, over)
}

fn draw(curves: &[Curve], over: Over) -> String {
    let all = || curves.iter().flat_map(Curve::all);
    let most = all().map(|(place, _)| place).fold(0.0, f64::max);
    let (unit, scale) = unit(over, most);
    let along = Axis::from_zero(most / scale);
    let up = Axis::of_losses(all().map(|(_, loss)| loss));
    let legend = Legend::new(entries(curves), WIDTH - LEFT - RIGHT);
    let top = LEGEND + legend.height() + LEGEND_GAP;
    let (bottom, height) = (top + CURVES_HEIGHT, top + CURVES_HEIGHT + BOTTOM);
    let x = |place: f64| LEFT + (WIDTH - LEFT - RIGHT) * along.share(place / scale);
    let y = |loss: f64| bottom - CURVES_HEIGHT * up.share(loss);

    let mut svg = String::new();
    line(&mut svg, &opening(WIDTH, height));
    line(&mut svg, &background(WIDTH, height));
    line(&mut svg, &text(LEFT, 28.0, 18.0, INK, "start", false, &caption(curves, &up)));
    legend.draw(&mut svg, LEFT, LEGEND);
    for (loss, figure) in up.figures() {
        let across = y(loss);
        line(&mut svg, &rule(LEFT, across, WIDTH - RIGHT, across, "#E2E2E2"));
        line(&mut svg, &text(LEFT - 8.0, across + 4.0, 12.0, FAINT, "end", false, &figure));
    }
    let figures = if over == Over::Samples { along.counts() } else { along.figures() };
    for (value, figure) in figures {
        let at = x(value * scale);
        line(&mut svg, &rule(at, bottom, at, bottom + 5.0, FAINT));
        line(&mut svg, &text(at, bottom + 20.0, 12.0, FAINT, "middle", false, &figure));
    }
    line(&mut svg, &rule(LEFT, bottom, WIDTH - RIGHT, bottom, FAINT));
    line(&mut svg, &text((WIDTH + LEFT - RIGHT) / 2.0, height - 12.0, 13.0, FAINT, "middle", false, unit));
    let places =
        |run: &[(f64, f64)]| run.iter().map(|&(place, loss)| (x(place), y(loss))).collect::<Vec<_>>();
    let runs = |losses: &Losses| finite_runs(losses).map(places).collect::<Vec<_>>();
    for (n, curve) in curves.iter().enumerate() {
        runs(&curve.losses).iter().for_each(|run| polyline(&mut svg, run, Stroke::nth(n)));
    }
    // On top of all lines.
    for (n, curve) in curves.iter().enumerate() {
        let stroke = of_evaluations(curves, n);
        let runs = runs(&curve.evaluations);
        if curves.len() == 1 {
            runs.iter().for_each(|run| polyline(&mut svg, run, stroke));
        }
        runs.iter().flatten().for_each(|&place| dot(&mut svg, place, stroke.color));
    }
    svg + "</svg>\n"
}

/// Evaluations of one training have a color of their own, those of several the color of theirs.
fn of_evaluations(curves: &[Curve], n: usize) -> Stroke {
    if curves.len() == 1 { Stroke::plain(VERMILION) } else { Stroke::nth(n) }
}

fn caption(curves: &[Curve], up: &Axis) -> String {
    let of = match curves {
        [curve] => format!("loss of {}", curve.job),
        _ => format!("loss of {} trainings", curves.len()),
    };
    if up.is_log() { of + ", on a logarithmic scale" } else { of }
}

/// One for each line; of several trainings also one for all their evaluations.
fn entries(curves: &[Curve]) -> Vec<Entry> {
    if let [curve] = curves {
        let training =
            Entry { words: "on training samples".to_owned(), mark: Mark::Line(Stroke::plain(BLUE)) };
        let evaluations = curve.set.map(|set| Entry {
            words: format!("on {set} samples"),
            mark: Mark::Dotted(of_evaluations(curves, 0)),
        });
        return [training].into_iter().chain(evaluations).collect();
    }
    let trainings = curves.iter().enumerate().map(|(n, Curve { job, policy, .. })| {
        let words = if policy.is_empty() { job.clone() } else { format!("{job} ({policy})") };
        Entry { words, mark: Mark::Line(Stroke::nth(n)) }
    });
    let sets: Vec<&str> = curves.iter().filter_map(|curve| curve.set).collect();
    let words = match sets.split_first() {
        None => None,
        Some((set, rest)) if rest.iter().all(|other| other == set) => {
            Some(format!("evaluations on {set} samples"))
        }
        Some(_) => Some("evaluations on validation or test samples".to_owned()),
    };
    trainings.chain(words.map(|words| Entry { words, mark: Mark::Dots })).collect()
}

/// What stands below the axis, and how many samples or seconds one of it is.
fn unit(over: Over, most: f64) -> (&'static str, f64) {
    match (over, most) {
        (Over::Samples, _) => ("samples", 1.0),
        (Over::Time, ..600.0) => ("seconds since the first point", 1.0),
        (Over::Time, ..36_000.0) => ("minutes since the first point", 60.0),
        (Over::Time, _) => ("hours since the first point", 3_600.0),
    }
}

/// What is between losses that are not finite.
fn finite_runs(losses: &Losses) -> impl Iterator<Item = &[(f64, f64)]> {
    losses.split(|(_, loss)| !loss.is_finite()).filter(|run| !run.is_empty())
}

fn rule(x1: f64, y1: f64, x2: f64, y2: f64, color: &str) -> String {
    format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}"/>"#)
}

/// A line through these places; one alone is a small dot.
fn polyline(svg: &mut String, places: &[(f64, f64)], stroke: Stroke) {
    if let [(x, y)] = places {
        return line(svg, &format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="2" fill="{}"/>"#, stroke.color));
    }
    let places = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
    line(svg, &format!(r#"<polyline points="{places}" {}/>"#, stroke.attributes()));
}

fn dot(svg: &mut String, (x, y): (f64, f64), color: &str) {
    line(svg, &format!(r##"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{color}" stroke="#FFFFFF"/>"##));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn curve(job: &str, losses: &[(f64, f64)], evaluations: &[(f64, f64)]) -> Curve {
        let set = (!evaluations.is_empty()).then_some("test");
        Curve {
            job: job.to_owned(),
            policy: "bsp".to_owned(),
            losses: losses.to_vec(),
            evaluations: evaluations.to_vec(),
            set,
        }
    }

    fn beginning<'a>(svg: &'a str, with: &str) -> Vec<&'a str> {
        svg.lines().filter(|line| line.starts_with(with)).collect()
    }

    #[test]
    fn a_curve_goes_from_the_first_point_to_the_last_and_has_a_gap_where_the_loss_was_none() {
        let losses = [(100.0, 3.0), (200.0, 1.5), (300.0, f64::NAN), (350.0, 2.0), (400.0, 0.0)];
        let svg = draw(&[curve("digits", &losses, &[])], Over::Samples);
        let lines = beginning(&svg, "<polyline");
        assert_eq!(lines.len(), 2, "{svg}");
        // 100 of 400 samples, and the highest loss; the curves are 752 wide, and from 78 to 418 high.
        assert!(lines[0].contains(r#"points="266.0,78.0 454.0,248.0""#), "{}", lines[0]);
        assert!(lines[1].contains(r#"points="736.0,191.3 830.0,418.0""#), "{}", lines[1]);
        assert!(svg.contains(">loss of digits</text>") && svg.ends_with("</svg>\n"));
        let alone = draw(&[curve("digits", &[(100.0, 3.0)], &[])], Over::Samples);
        assert!(alone.contains(r#"r="2""#), "one point is seen, too: {alone}");
    }

    #[test]
    fn evaluations_of_one_training_are_dots_on_a_line_of_their_own() {
        let evaluations = [(200.0, 5.0), (400.0, f64::INFINITY), (300.0, 2.0)];
        let svg = draw(&[curve("digits", &[(100.0, 3.0), (400.0, 1.0)], &evaluations)], Over::Samples);
        let dots: Vec<&str> = svg.lines().filter(|line| line.contains("stroke=\"#FFFFFF\"")).collect();
        assert_eq!(dots.len(), 2, "{svg}");
        assert!(dots[0].contains(r#"cx="454.0" cy="78.0""#), "the highest of all: {}", dots[0]);
        assert!(dots[0].contains(VERMILION) && svg.contains(">on test samples</text>"));
        assert!(!draw(&[curve("digits", &[(100.0, 3.0)], &[])], Over::Samples).contains("test samples"));
    }

    #[test]
    fn every_training_looks_different_and_its_evaluations_have_its_color() {
        let all: Vec<Curve> = (0..20)
            .map(|n| curve(&format!("job-{n}"), &[(0.0, 3.0), (9.0, f64::from(n))], &[(5.0, 1.0)]))
            .collect();
        let svg = draw(&all, Over::Time);
        let look = |line: &&str| line.split_once("fill=").unwrap().1.to_owned();
        let looks: BTreeSet<String> = beginning(&svg, "<polyline").iter().map(look).collect();
        assert_eq!(looks.len(), all.len(), "{looks:?}");
        let dots: Vec<&str> = svg.lines().filter(|line| line.contains("stroke=\"#FFFFFF\"")).collect();
        assert_eq!(dots.len(), all.len());
        for (n, dot) in dots.iter().enumerate() {
            assert!(dot.contains(Stroke::nth(n).color), "{n}: {dot}");
            assert!(svg.contains(&format!(">job-{n} (bsp)</text>")));
        }
        assert!(
            svg.contains(">evaluations on test samples</text>")
                && svg.contains(">loss of 20 trainings</text>")
        );
    }

    #[test]
    fn time_is_told_in_units_that_people_can_read() {
        for (most_s, unit, last) in
            [(500.0, "seconds", "500"), (3_000.0, "minutes", "50"), (360_000.0, "hours", "100")]
        {
            let svg = draw(&[curve("a", &[(0.0, 3.0), (most_s, 1.0)], &[])], Over::Time);
            assert!(svg.contains(&format!(">{unit} since the first point</text>")), "{svg}");
            assert!(svg.contains(&format!(">{last}</text>")), "{svg}");
        }
    }

    #[test]
    fn no_points_and_a_flat_line_are_pictures_too() {
        for points in
            [&[][..], &[(10.0, 0.5), (20.0, 0.5)], &[(10.0, f64::NAN)], &[(10.0, 1e20)], &[(0.0, 0.0)]]
        {
            for n in 0..3 {
                let svg = draw(&vec![curve("x", points, &[]); n], Over::Samples);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn a_training_that_diverges_leaves_the_others_readable() {
        let all = [curve("a", &[(1.0, 2.0), (2.0, 0.5)], &[]), curve("b", &[(1.0, 2.0), (2.0, 1e20)], &[])];
        assert!(draw(&all, Over::Samples).contains(">loss of 2 trainings, on a logarithmic scale</text>"));
    }
}
