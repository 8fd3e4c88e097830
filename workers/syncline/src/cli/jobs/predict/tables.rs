//! Figures of each class, label and target as tables: of many only the worst.

use syncline_scheduler::core::significant;

use super::figures::Target;
use crate::cli::table;

/// Rows of a table: of more than these only the worst.
const ROWS_SHOWN: usize = 20;

/// How often a class or a label was there, was predicted, and was right.
pub(super) struct Counts {
    pub name: String,
    pub there: u64,
    pub predicted: u64,
    pub right: u64,
    pub recall: Option<f64>,
    pub precision: Option<f64>,
}

/// The worst are those of which the least was found; `names`: of the first two columns. `None` where there
/// are none.
pub(super) fn counts(names: [&str; 2], mut all: Vec<Counts>) -> Option<String> {
    let count = all.len();
    if count > ROWS_SHOWN {
        let worth = |counts: &Counts| counts.recall.unwrap_or(f64::INFINITY);
        all.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
        all.truncate(ROWS_SHOWN);
    }
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let row = |counts: &Counts| {
        let Counts { name, there, predicted, right, recall, precision } = counts;
        let figures = [there, predicted, right].map(u64::to_string);
        [vec![name.clone()], figures.to_vec(), vec![percent(*recall), percent(*precision)]].concat()
    };
    let [number, there] = names;
    let columns = [number, there, ">predicted", ">right", ">recall", ">precision"];
    let rows: Vec<_> = all.iter().map(row).collect();
    (count > 0).then(|| with_the_rest(table(&columns, &rows), count))
}

/// The worst are those with the lowest R². `None` for one target, whose figures are those of all.
pub(super) fn targets(all: &[Target]) -> Option<String> {
    let mut shown: Vec<&Target> = all.iter().collect();
    if shown.len() > ROWS_SHOWN {
        let worth = |target: &Target| target.r_squared.unwrap_or(f64::INFINITY);
        shown.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
        shown.truncate(ROWS_SHOWN);
    }
    let number = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), significant);
    let row = |target: &&Target| {
        let figures =
            [target.mean_absolute_error, target.root_mean_square_error, target.r_squared].map(number);
        [vec![target.target.to_string()], figures.to_vec()].concat()
    };
    let rows: Vec<_> = shown.iter().map(row).collect();
    let columns = [">target", ">MAE", ">RMSE", ">R²"];
    (all.len() > 1).then(|| with_the_rest(table(&columns, &rows), all.len()))
}

fn with_the_rest(table: String, all: usize) -> String {
    match all.saturating_sub(ROWS_SHOWN) {
        0 => table,
        more => format!("{table}\nthe worst {ROWS_SHOWN}; {more} more with --json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_rows_the_worst_are_shown() {
        let classes = |count: usize| {
            let counts = (0..count).map(|number| Counts {
                name: number.to_string(),
                there: 100,
                predicted: 100,
                right: 100 - number as u64,
                recall: Some(1.0 - number as f64 / 100.0),
                precision: None,
            });
            super::counts([">class", ">labels"], counts.collect())
        };
        assert_eq!(classes(0), None);
        let few = classes(2).unwrap();
        assert!(
            few.contains("1     100        100     99   99.0 %          -") && few.lines().count() == 3,
            "{few}"
        );
        let many = classes(23).unwrap();
        assert!(many.ends_with("the worst 20; 3 more with --json") && many.contains("78.0 %"), "{many}");
        assert!(!many.contains("100.0 %"), "{many}");
    }

    #[test]
    fn targets_are_a_table_where_there_are_several() {
        let target = |target: usize, r_squared: Option<f64>| Target {
            target,
            mean_absolute_error: Some(0.5),
            root_mean_square_error: Some(1.0),
            r_squared,
        };
        assert_eq!(targets(&[target(0, Some(0.5))]), None);
        let two = targets(&[target(0, Some(0.5)), target(1, None)]).unwrap();
        let cells: Vec<Vec<&str>> = two.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["target", "MAE", "RMSE", "R²"]);
        assert_eq!((cells[1][0], cells[2][0], cells[2][3]), ("0", "1", "-"));
    }
}
