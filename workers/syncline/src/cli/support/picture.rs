//! The name of a picture that is drawn.

use std::path::PathBuf;

/// The file of a picture on the command line: SVG is what is drawn, whatever the file is called.
pub(crate) fn svg_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err(format!(
            "pictures are drawn as SVG, which browsers show: call it {}",
            path.with_extension("svg").display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::svg_file;

    #[test]
    fn a_picture_that_is_called_otherwise_than_svg_is_refused() {
        assert!(svg_file("loss.svg").is_ok() && svg_file("a/LOSS.SVG").is_ok());
        for name in ["loss.png", "loss", "svg", "loss.svg.gz"] {
            let refused = svg_file(name).unwrap_err();
            assert!(refused.ends_with(".svg"), "{refused}");
        }
    }
}
