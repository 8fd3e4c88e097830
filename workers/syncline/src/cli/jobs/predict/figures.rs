//! How well a model does, in words and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use syncline_scheduler::{core::significant, ids::JobId};
use syncline_workers::predict::{ClassFigures, Figures};

use crate::cli::table;

/// Classes that a table shows: of more than these only the worst.
const CLASSES_SHOWN: usize = 20;
/// The most frequent mistakes that are shown.
const MISTAKES_SHOWN: usize = 5;

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    job: JobId,
    /// Part of the job's data; `None`: other files.
    part: Option<&'static str>,
    /// The files.
    data: String,
    samples: usize,
    loss: Option<f64>,
    accuracy: Option<f64>,
    top_k_accuracy: Option<f64>,
    perplexity: Option<f64>,
    mean_absolute_error: Option<f64>,
    root_mean_square_error: Option<f64>,
    r_squared: Option<f64>,
    classes: Vec<Class>,
    mistakes: Vec<Mistake>,
    /// What was written.
    file: Option<String>,
}

/// How often a class was there, was named, and was right.
#[derive(Debug, Serialize)]
struct Class {
    class: usize,
    labels: u64,
    predicted: u64,
    right: u64,
    recall: Option<f64>,
    precision: Option<f64>,
}

/// A class that was named in the place of another one.
#[derive(Debug, Serialize)]
struct Mistake {
    label: u32,
    predicted: u32,
    times: u64,
}

impl Report {
    pub(super) fn new(
        job: JobId,
        part: Option<&'static str>,
        data: String,
        samples: usize,
        figures: &Figures,
        file: Option<PathBuf>,
    ) -> Self {
        let (evaluation, values) = (figures.evaluation.as_ref(), figures.values.as_ref());
        let classes = figures.classes.as_ref().filter(|classes| !classes.is_empty());
        Self {
            job,
            part,
            data,
            samples,
            loss: evaluation.map(|evaluation| evaluation.loss),
            accuracy: evaluation.and_then(|evaluation| evaluation.accuracy),
            top_k_accuracy: evaluation.and_then(|evaluation| evaluation.top_k_accuracy),
            perplexity: evaluation.and_then(|evaluation| evaluation.perplexity),
            mean_absolute_error: values.and_then(|values| values.mean_absolute_error()),
            root_mean_square_error: values.and_then(|values| values.root_mean_square_error()),
            r_squared: values.and_then(|values| values.r_squared()),
            classes: classes.map(of_classes).unwrap_or_default(),
            mistakes: classes.map(mistakes).unwrap_or_default(),
            file: file.map(|file| file.display().to_string()),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { job, part, data, samples, file, .. } = self;
        let which = part.map(|part| format!("{part} samples of ")).unwrap_or_default();
        let mut lines = vec![format!("job        {job}"), format!("samples    {samples}, {which}{data}")];
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let figures = [
            ("loss", self.loss.map(significant)),
            ("accuracy", self.accuracy.map(percent)),
            ("top-k", self.top_k_accuracy.map(percent)),
            ("perplexity", self.perplexity.map(significant)),
            ("MAE", self.mean_absolute_error.map(significant)),
            ("RMSE", self.root_mean_square_error.map(significant)),
            ("R²", self.r_squared.map(significant)),
            ("written", file.clone()),
        ];
        lines.extend(figures.into_iter().filter_map(|(name, text)| Some(format!("{name:<10} {}", text?))));
        if !self.classes.is_empty() {
            lines.extend([String::new(), self.class_table()]);
        }
        let mistakes = self.mistakes.iter();
        lines.extend(mistakes.map(|Mistake { label, predicted, times }| {
            let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
            format!("{label} taken for {predicted}: {often}")
        }));
        lines.join("\n")
    }

    fn class_table(&self) -> String {
        let mut shown: Vec<&Class> = self.classes.iter().collect();
        if shown.len() > CLASSES_SHOWN {
            let worth = |class: &Class| class.recall.unwrap_or(f64::INFINITY);
            shown.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
            shown.truncate(CLASSES_SHOWN);
        }
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        let row = |class: &&Class| {
            vec![
                class.class.to_string(),
                class.labels.to_string(),
                class.predicted.to_string(),
                class.right.to_string(),
                percent(class.recall),
                percent(class.precision),
            ]
        };
        let columns = [">class", ">labels", ">predicted", ">right", ">recall", ">precision"];
        let rows: Vec<_> = shown.iter().map(row).collect();
        let left_out = self.classes.len() - shown.len();
        match left_out {
            0 => table(&columns, &rows),
            more => format!("{}\nthe worst {CLASSES_SHOWN}; {more} more with --json", table(&columns, &rows)),
        }
    }
}

fn of_classes(figures: &ClassFigures) -> Vec<Class> {
    let classes = figures.classes.iter().enumerate();
    let class = |(class, counts): (usize, &syncline_workers::predict::ClassCounts)| Class {
        class,
        labels: counts.labels,
        predicted: counts.predicted,
        right: counts.right,
        recall: counts.recall(),
        precision: counts.precision(),
    };
    classes.map(class).collect()
}

fn mistakes(figures: &ClassFigures) -> Vec<Mistake> {
    let mistake = |(label, predicted, times)| Mistake { label, predicted, times };
    figures.most_confused(MISTAKES_SHOWN).into_iter().map(mistake).collect()
}
