//! All searches against tables and brute force.

use super::*;
use proptest::prelude::*;

/// Every window that starts at a point, with every row's first point in it.
fn windows(rows: &[Vec<u64>]) -> impl Iterator<Item = Alternative> {
    let window_from = |from: u64| {
        let ends = rows.iter().map(|row| row.iter().copied().find(|&e| e >= from));
        let sync_at_us = ends.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(Alternative { span_us: sync_at_us - from, sync_at_us })
    };
    rows.iter().flatten().filter_map(move |&from| window_from(from))
}

/// The window that ends at the meeting, everybody at the latest point.
fn to_the_latest(rows: &[Vec<u64>], Alternative { span_us, sync_at_us }: Alternative) -> Option<Window> {
    let index = rows.iter().map(|row| row.iter().rposition(|&e| e <= sync_at_us).map(|i| i as u32));
    Some(Window { span_us, sync_at_us, index: index.collect::<Option<_>>()? })
}

fn by_brute_force(rows: &[Vec<u64>]) -> Option<Window> {
    to_the_latest(rows, windows(rows).min()?)
}

/// The earliest window, then the narrowest, that is at most `limit_us` wide.
fn earliest_by_brute_force(rows: &[Vec<u64>], limit_us: u64) -> Option<Window> {
    let narrow = windows(rows).filter(|w| w.span_us <= limit_us);
    to_the_latest(rows, narrow.min_by_key(|w| (w.sync_at_us, w.span_us))?)
}

fn spelled_out(row: &Row) -> Vec<u64> {
    (0..row.count).map(|i| row.at(i)).collect()
}

/// Whether every index of the window stands for a point in it, and one of them for its end.
fn holds_what_it_says<P: Points>(rows: &[P], window: &Window) -> bool {
    let begin_us = window.sync_at_us - window.span_us;
    let points = || rows.iter().zip(&window.index).map(|(row, &i)| row.at(i));
    window.index.len() == rows.len()
        && points().all(|t| (begin_us..=window.sync_at_us).contains(&t))
        && points().any(|t| t == window.sync_at_us)
        && points().any(|t| t == begin_us)
}

/// (name, rows, what is expected: span, sync time, indices).
type Case<'a> = (&'a str, &'a [&'a [u64]], Option<(u64, u64, &'a [u32])>);

#[test]
fn narrowest_window_table() {
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("no worker",                         &[],                                   None),
        ("a worker without points",           &[&[5], &[]],                          None),
        ("only a worker without points",      &[&[]],                                None),
        ("descending points",                 &[&[5], &[7, 6]],                      None),
        ("one worker stops at once",          &[&[7, 9]],                            Some((0, 7, &[0]))),
        ("one point each",                    &[&[10], &[4], &[6]],                  Some((6, 10, &[0, 0, 0]))),
        // 10   20   30            a
        //           29        58  b
        ("three fast ones for one slow",      &[&[10, 20, 30], &[29, 58]],           Some((1, 30, &[2, 0]))),
        // 10        20            a
        //   12        22          b      both spans are 2
        ("earliest of equal spans",           &[&[10, 20], &[12, 22]],               Some((2, 12, &[0, 0]))),
        ("latest of equal points",            &[&[7, 7, 8], &[4, 7]],                Some((0, 7, &[1, 1]))),
        //  5 7   9                a
        //    6                    b      5..6 is as narrow as 6..7
        ("latest point not after the meeting", &[&[5, 7, 9], &[6]],                  Some((1, 6, &[0, 0]))),
        ("one worker far behind",             &[&[1, 2, 3], &[1, 5], &[90]],         Some((87, 90, &[2, 1, 0]))),
        ("FullGridScan finds only 4 here",    &[&[3, 7], &[1, 6], &[2, 3], &[6, 7]], Some((3, 6, &[0, 1, 1, 0]))),
        ("whole range of u64",                &[&[0], &[u64::MAX]],                  Some((u64::MAX, u64::MAX, &[0, 0]))),
    ];
    for (name, rows, want) in cases {
        let want =
            want.map(|(span_us, sync_at_us, index)| Window { span_us, sync_at_us, index: index.into() });
        assert_eq!(narrowest_window(rows), want, "{name}");
        assert_eq!(earliest_within(rows, Slack::default()), want, "without slack: {name}");
        for algorithm in Algorithm::ALL.into_iter().filter(|a| a.is_exact()) {
            let found = search(algorithm, rows);
            assert!(found.as_ref().is_none_or(|w| holds_what_it_says(rows, w)), "{algorithm}: {name}");
            let weighed = |w: &Window| (w.span_us, w.sync_at_us);
            assert_eq!(found.as_ref().map(weighed), want.as_ref().map(weighed), "{algorithm}: {name}");
        }
        for algorithm in [Algorithm::GridScan, Algorithm::FullGridScan] {
            assert_eq!(search(algorithm, rows).is_none(), want.is_none(), "{algorithm}: {name}");
        }
        let rows: Vec<_> = rows.iter().map(|row| row.to_vec()).collect();
        if !rows.iter().any(|row| row.is_empty() || !row.is_sorted()) {
            assert_eq!(by_brute_force(&rows), want, "oracle: {name}");
        }
    }
}

#[test]
fn the_grid_scans_miss_the_narrowest_window() {
    let spans = |rows: &[&[u64]]| {
        [Algorithm::ZipLine, Algorithm::GridScan, Algorithm::FullGridScan]
            .map(|algorithm| search(algorithm, rows).map(|w| w.span_us))
    };
    // 0         5            base: 3 is nearer to 5 than 8 is
    //       3         8
    //                 8      as the base it would do
    assert_eq!(spans(&[&[0, 5], &[3, 8], &[8]]), [Some(3), Some(5), Some(3)]);
    //     3     7            no base does: from 3 and 6, 6 and 3 are left for 7 and 2
    // 1       6
    //   2 3
    //         6 7
    assert_eq!(spans(&[&[3, 7], &[1, 6], &[2, 3], &[6, 7]]), [Some(3), Some(4), Some(4)]);
}

#[test]
fn points_beyond_the_end_of_time_count_as_its_end() {
    let late = Row { first_us: u64::MAX - 5, interval_us: 4, count: 9 };
    let huge = Row { first_us: 3, interval_us: u64::MAX, count: 2 };
    let window = narrowest_window(&[late, huge]).unwrap();
    assert_eq!(window, Window { span_us: 0, sync_at_us: u64::MAX, index: vec![8, 1] });
}

#[test]
fn the_last_alternatives_are_kept() {
    let rows = [vec![10, 20, 30, 40], vec![13, 22, 31, 40]];
    let spans = |k| alternatives(&rows, k).iter().map(|w| w.span_us).collect::<Vec<_>>();
    assert_eq!((spans(9), spans(2), spans(0)), (vec![3, 2, 1, 0], vec![1, 0], vec![]));
    assert_eq!(alternatives::<Row>(&[], 3), []);
}

#[test]
fn the_papers_rows_are_the_same_for_the_same_seed() {
    let rows = papers_rows(100, 15, 7);
    assert_eq!(rows, papers_rows(100, 15, 7));
    assert!(rows.iter().all(|row| (1000..=1500).contains(&row.interval_us) && row.count == 15));
    // All have come as far as the slowest after 20 iterations: the predictions begin within one iteration.
    let firsts = || rows.iter().map(|row| row.first_us - row.interval_us);
    assert!(firsts().max().unwrap() - firsts().min().unwrap() < 1500);
}

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let row = |first_us: std::ops::RangeInclusive<u64>, interval_us: std::ops::RangeInclusive<u64>| {
        (first_us, interval_us, 1u32..12).prop_map(|(first_us, interval_us, count)| Row {
            first_us,
            interval_us,
            count,
        })
    };
    prop_oneof![
        prop::collection::vec(row(0..=30, 0..=9), 1..9), // many ties
        prop::collection::vec(row(0..=20_000, 900..=1500), 1..30), // speeds alike
        prop::collection::vec(row(0..=90_000, 1..=90_000), 1..12), // speeds far apart
        prop::collection::vec(row(u64::MAX - 90..=u64::MAX, 0..=30), 1..6), // overflow
    ]
}

fn any_points() -> impl Strategy<Value = Vec<Vec<u64>>> {
    prop::collection::vec(prop::collection::vec(0u64..60, 1..9), 1..8).prop_map(|mut rows| {
        rows.iter_mut().for_each(|row| row.sort_unstable());
        rows
    })
}

fn agree_with_brute_force<P: Points>(rows: &[P], points: &[Vec<u64>]) -> Result<(), TestCaseError> {
    let want = by_brute_force(points);
    let (span_us, sync_at_us) = want.as_ref().map(|w| (w.span_us, w.sync_at_us)).unwrap();
    for algorithm in Algorithm::ALL {
        let found = search(algorithm, rows).unwrap();
        prop_assert!(holds_what_it_says(rows, &found), "{algorithm}: {found:?}");
        match algorithm {
            Algorithm::Skipping | Algorithm::HeapMerge => prop_assert_eq!(Some(found), want.clone()),
            exact if exact.is_exact() => {
                prop_assert_eq!((found.span_us, found.sync_at_us), (span_us, sync_at_us), "{}", exact)
            }
            _ => prop_assert!(found.span_us >= span_us),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn progressions_agree_with_brute_force(rows in any_rows()) {
        let points: Vec<_> = rows.iter().map(spelled_out).collect();
        agree_with_brute_force(&rows, &points)?;
        agree_with_brute_force(&points, &points)?;
    }

    #[test]
    fn any_ascending_points_agree_with_brute_force(points in any_points()) {
        agree_with_brute_force(&points, &points)?;
    }

    #[test]
    fn the_earliest_narrow_window_agrees_with_brute_force(
        rows in any_rows(), points in any_points(), percent in 0u32..400
    ) {
        let limit_us = |points| {
            let narrowest = u128::from(by_brute_force(points).unwrap().span_us);
            u64::try_from(narrowest * u128::from(100 + percent) / 100).unwrap_or(u64::MAX)
        };
        let slack = Slack::try_from(f64::from(percent) / 100.0).unwrap();
        let spelled: Vec<_> = rows.iter().map(spelled_out).collect();
        let want = earliest_by_brute_force(&spelled, limit_us(&spelled));
        prop_assert_eq!(earliest_within(&rows, slack), want);
        let want = earliest_by_brute_force(&points, limit_us(&points));
        prop_assert_eq!(earliest_within(&points, slack), want);
    }

    #[test]
    fn each_alternative_is_the_narrowest_window_by_its_time(rows in any_rows()) {
        let points: Vec<_> = rows.iter().map(spelled_out).collect();
        let found = alternatives(&rows, usize::MAX);
        let best = by_brute_force(&points).unwrap();
        prop_assert_eq!(found.last().map(|w| (w.span_us, w.sync_at_us)), Some((best.span_us, best.sync_at_us)));
        prop_assert!(found.is_sorted_by(|a, b| a.span_us > b.span_us && a.sync_at_us < b.sync_at_us));
        for window in found {
            let by_then = windows(&points).filter(|w| w.sync_at_us <= window.sync_at_us).min();
            prop_assert_eq!(Some(window), by_then);
        }
    }
}
