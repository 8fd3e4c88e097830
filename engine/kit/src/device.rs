//! What a worker computes on.

use std::fmt;
use std::str::FromStr;

/// What a worker computes on. Text form: `cpu`, or `cuda:N` with N as the CUDA runtime counts its devices, so
/// that `CUDA_VISIBLE_DEVICES` applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// The processors of this machine.
    #[default]
    Cpu,
    /// One NVIDIA GPU.
    Cuda(u8),
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E490] `{text}` is no device: expected cpu, or cuda:N with N from 0 to 255")]
pub struct InvalidDevice {
    /// The text as it was given.
    pub text: String,
}

impl InvalidDevice {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E490"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl FromStr for Device {
    type Err = InvalidDevice;

    fn from_str(text: &str) -> Result<Self, InvalidDevice> {
        let cuda = || {
            let digits = text.strip_prefix("cuda:")?;
            // The number parser takes a sign as well.
            digits.parse().ok().filter(|_| !digits.starts_with('+')).map(Self::Cuda)
        };
        let device = if text == "cpu" { Some(Self::Cpu) } else { cuda() };
        device.ok_or_else(|| InvalidDevice { text: text.to_owned() })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_table() {
        #[rustfmt::skip]
        let cases = [
            ("cpu",       Some(Device::Cpu)),
            ("cuda:0",    Some(Device::Cuda(0))),
            ("cuda:255",  Some(Device::Cuda(255))),
            ("cuda:256",  None),
            ("cuda:-1",   None),
            ("cuda:+1",   None),
            ("cuda:",     None),
            ("cuda",      None),
            ("cuda:0 ",   None),
            ("CPU",       None),
            ("gpu",       None),
            ("",          None),
        ];
        for (text, want) in cases {
            let device = text.parse::<Device>();
            assert_eq!(device.clone().ok(), want, "{text}");
            match device {
                Ok(device) => assert_eq!(device.to_string(), text),
                Err(error) => assert!(error.to_string().contains(&format!("`{text}`")), "{error}"),
            }
        }
    }
}
