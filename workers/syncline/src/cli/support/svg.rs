//! The pieces of pictures in SVG, readable in any browser.

// Okabe and Ito's palette, which color-blind people can tell apart.
/// Of what the picture is about.
pub(crate) const BLUE: &str = "#0072B2";
/// Of what it is compared with.
pub(crate) const VERMILION: &str = "#D55E00";
pub(crate) const ORANGE: &str = "#E69F00";
pub(crate) const SKY_BLUE: &str = "#56B4E9";
/// Of lines that are compared with each other, in this order: yellow, which nobody sees on white, is left
/// out.
pub(crate) const CURVES: [&str; 7] = [BLUE, VERMILION, "#009E73", "#CC79A7", "#000000", ORANGE, SKY_BLUE];
/// Of what is read first.
pub(crate) const INK: &str = "#222222";
/// Of what is read second.
pub(crate) const FAINT: &str = "#767676";

/// The opening tag of a picture of this size; `</svg>` ends it.
pub(crate) fn opening(width: f64, height: f64) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="Helvetica, Arial, 'Liberation Sans', sans-serif">"#
    )
}

/// What everything else is drawn on.
pub(crate) fn background(width: f64, height: f64) -> String {
    format!(r##"<rect width="{width}" height="{height}" fill="#FFFFFF"/>"##)
}

/// Adds one element, in a line of its own.
pub(crate) fn line(svg: &mut String, element: &str) {
    svg.push_str(element);
    svg.push('\n');
}

/// Words at a place; `anchor`: `start`, `middle` or `end`.
pub(crate) fn text(
    x: f64,
    y: f64,
    size: f64,
    color: &str,
    anchor: &str,
    bold: bool,
    content: &str,
) -> String {
    let weight = if bold { r#" font-weight="bold""# } else { "" };
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{content}</text>"#
    )
}
