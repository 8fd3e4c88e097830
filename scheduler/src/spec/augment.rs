//! What happens to images while they train.

use serde::{Deserialize, Serialize};

/// Changes of training images, drawn anew for each sample in each epoch. As torchvision's `RandomCrop`,
/// `RandomHorizontalFlip`, `ToTensor` and `Normalize`, in this order: what is padded is 0 before it is scaled
/// and normalized.
///
/// What a sample becomes follows from the seed of the job, the epoch and the sample's place in the files, and
/// from nothing else: it is the same on every worker, in a batch of any size, and when an iteration is
/// repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augment {
    /// Half of the images are mirrored, left to right.
    pub flip: bool,
    /// Pixels by which an image is padded on each side, before one of its size is cut out anywhere; 0: it
    /// stays where it is.
    pub crop: u32,
    /// Side in pixels of a square, anywhere in the image, in which every pixel becomes the mean of its
    /// channel; 0: none. Of a square at the edge a part lies outside. Source: DeVries and Taylor, 2017,
    /// arXiv:1708.04552.
    pub cutout: u32,
}

impl Augment {
    /// Whether every image stays as it is.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}
