//! Loss curves of one or several trainings as SVG, readable in any browser.

mod axis;
mod curve;
mod legend;
mod picture;

pub(crate) use curve::Over;
pub(crate) use picture::of_trainings;
