//! What each line of a picture is, in rows above it.

use super::picture::Stroke;
use crate::cli::support::svg::{FAINT, INK, line, text};

const ROW: f64 = 20.0;
/// Of the piece of line in front of the words, and of the gap behind an entry.
const SAMPLE: f64 = 26.0;
const GAP: f64 = 22.0;
const FONT: f64 = 13.0;
/// Of a letter of this font, rather more than less: what shows the picture may have another font.
const LETTER: f64 = 7.1;

/// An entry of the legend.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) words: String,
    pub(super) mark: Mark,
}

/// What stands in front of the words.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mark {
    Line(Stroke),
    /// A line with dots.
    Dotted(Stroke),
    /// Dots alone.
    Dots,
}

/// Entries that have found their places.
#[derive(Debug)]
pub(super) struct Legend {
    /// From the left, and row.
    places: Vec<(f64, u32, Entry)>,
    rows: u32,
}

impl Legend {
    /// Puts as many entries into each row as fit into its width.
    pub(super) fn new(entries: Vec<Entry>, width: f64) -> Self {
        let (mut at, mut row) = (0.0, 0);
        let mut places = Vec::new();
        for entry in entries {
            let wide = SAMPLE + 6.0 + entry.words.chars().count() as f64 * LETTER;
            if at > 0.0 && at + wide > width {
                (at, row) = (0.0, row + 1);
            }
            places.push((at, row, entry));
            at += wide + GAP;
        }
        let rows = if places.is_empty() { 0 } else { row + 1 };
        Self { places, rows }
    }

    pub(super) fn height(&self) -> f64 {
        f64::from(self.rows) * ROW
    }

    /// Draws it from this corner on.
    pub(super) fn draw(&self, svg: &mut String, left: f64, top: f64) {
        for (at, row, Entry { words, mark }) in &self.places {
            let (x, y) = (left + at, top + f64::from(*row) * ROW + ROW / 2.0);
            if let Mark::Line(stroke) | Mark::Dotted(stroke) = mark {
                let sample = format!(
                    r#"<line x1="{x:.1}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" {}/>"#,
                    x + SAMPLE,
                    stroke.attributes()
                );
                line(svg, &sample);
            }
            let dot = match mark {
                Mark::Line(_) => None,
                Mark::Dotted(stroke) => Some(stroke.color),
                Mark::Dots => Some(FAINT),
            };
            if let Some(color) = dot {
                let middle = x + SAMPLE / 2.0;
                line(svg, &format!(r#"<circle cx="{middle:.1}" cy="{y:.1}" r="4" fill="{color}"/>"#));
            }
            line(svg, &text(x + SAMPLE + 6.0, y + 4.5, FONT, INK, "start", false, words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_on_in_the_next_row_where_they_do_not_fit() {
        let entry = |words: &str| Entry { words: words.to_owned(), mark: Mark::Dots };
        let rows = |words: &[&str], width| {
            let legend = Legend::new(words.iter().map(|words| entry(words)).collect(), width);
            (legend.places.iter().map(|(_, row, _)| *row).collect::<Vec<_>>(), legend.height())
        };
        assert_eq!(rows(&["a", "b"], 500.0), (vec![0, 0], 20.0));
        assert_eq!(rows(&["aaaaaaaaaa", "bbbbbbbbbb", "c"], 200.0), (vec![0, 1, 1], 40.0));
        assert_eq!(rows(&["wider than the whole row", "b"], 50.0), (vec![0, 1], 40.0));
        assert_eq!(rows(&[], 50.0), (vec![], 0.0));
    }
}
