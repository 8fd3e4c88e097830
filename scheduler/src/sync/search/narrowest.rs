//! The narrowest window by the default search, and the windows that the search improved through.

use std::collections::VecDeque;

use super::{Alternative, Points, Window, skipping::SkippingSearch};

/// The narrowest window that holds one point of every row: the default search. Ties and indices as the
/// [module](super) says.
///
/// `None` if there is no row, if a row has no point, or if its points are not ascending.
///
/// Time O(n log n + V log n), V ≤ nR the points visited; memory O(n). Measured with 1,000 workers and R =
/// 150: 0.4 ms for intervals of 1.0 to 1.5 s as in the papers, 2.7 ms for workers so alike that none can be
/// left out (`benches/zipline.rs`).
///
/// ```
/// use syncline_scheduler::sync::search::{Row, narrowest_window};
/// let fast = Row { first_us: 10, interval_us: 10, count: 5 };
/// let slow = Row { first_us: 29, interval_us: 29, count: 5 };
/// let window = narrowest_window(&[fast, slow]).unwrap();
/// assert_eq!((window.span_us, window.sync_at_us), (1, 30)); // fast ends its third iteration 1 µs after slow
/// assert_eq!(window.index, [2, 0]);
/// ```
pub fn narrowest_window<P: Points>(rows: &[P]) -> Option<Window> {
    let best = descend(rows, |_| ())?;
    Window::ending_at(rows, best.span_us, best.sync_at_us)
}

/// Windows that were weighed before the narrowest was found, at most `k`, the narrowest last.
///
/// The default search goes through the meeting times from early to late and improves on the best window so
/// far until none is narrower. These are the last `k` of those windows: each is narrower than all that end
/// before it, so it was the best choice for anyone who would not wait longer. Empty where
/// [`narrowest_window`] finds none. Costs one such search, memory O(n + k).
///
/// ```
/// use syncline_scheduler::sync::search::{Row, alternatives};
/// let fast = Row { first_us: 10, interval_us: 10, count: 5 };
/// let slow = Row { first_us: 29, interval_us: 29, count: 5 };
/// let spans: Vec<u64> = alternatives(&[fast, slow], 9).iter().map(|w| w.span_us).collect();
/// assert_eq!(spans, [9, 1]); // meet at 29 or at 30
/// ```
pub fn alternatives<P: Points>(rows: &[P], k: usize) -> Vec<Alternative> {
    let mut kept = VecDeque::new();
    let keep = |window| {
        if kept.len() == k {
            kept.pop_front();
        }
        if k > 0 {
            kept.push_back(window);
        }
    };
    match descend(rows, keep) {
        Some(_) => kept.into(),
        None => Vec::new(),
    }
}

/// Improves until no window is narrower; shows each window that is narrower than all that end before it.
fn descend<P: Points>(rows: &[P], mut show: impl FnMut(Alternative)) -> Option<Alternative> {
    let mut search = SkippingSearch::new(rows)?;
    loop {
        let best = Alternative { span_us: search.narrowest_here(), sync_at_us: search.sync_at_us };
        show(best);
        if best.span_us == 0 || !search.skip_to_next(best.span_us - 1) {
            return Some(best);
        }
    }
}
