//! What can be known of the driver and its GPUs before anything large is loaded.

use std::env;
use std::ffi::c_int;
use std::path::PathBuf;

use libloading::Library;
use syncline_kit::Device;

use crate::device::refused;
use crate::error::BackendError;

/// Names the GPUs that this process may see.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Refuses a GPU that is hidden, and a driver that is too old for the libraries in `preload`, of which it is
/// the first.
pub(super) fn check(device: Device, preload: &[PathBuf]) -> Result<(), BackendError> {
    let Device::Cuda(index) = device else { return Ok(()) };
    let listed = env::var(VISIBLE).ok();
    if let Some(reason) = listed.and_then(|listed| hidden(&listed, index)) {
        return Err(refused(device, reason));
    }
    match preload.first().and_then(newest_cuda).and_then(|newest| too_old(newest, preload)) {
        Some(reason) => Err(refused(device, reason)),
        None => Ok(()),
    }
}

/// Why no GPU of this index is among those that `CUDA_VISIBLE_DEVICES` lists, if that can be told.
///
/// CUDA takes numbers and names from the list up to the first that is none, and one MIG device at most.
fn hidden(listed: &str, index: u8) -> Option<String> {
    let is_name = |text: &str| text.starts_with("GPU-") || text.starts_with("MIG-");
    let names: Vec<&str> = listed
        .split(',')
        .map(str::trim)
        .take_while(|text| text.parse::<u32>().is_ok() || is_name(text))
        .collect();
    let is_mig = names.first().is_some_and(|name| name.starts_with("MIG-"));
    let visible = if is_mig { 1 } else { names.len() };
    if usize::from(index) < visible {
        return None;
    }
    Some(match visible {
        0 => format!("{VISIBLE}={listed} hides all GPUs"),
        _ if is_mig => format!("{VISIBLE}={listed} shows a MIG device, of which a process has one: cuda:0"),
        1 => format!("{VISIBLE}={listed} shows one GPU, which is cuda:0 then"),
        count => {
            format!("{VISIBLE}={listed} shows {count} GPUs, which are cuda:0 to cuda:{} then", count - 1)
        }
    })
}

/// The newest CUDA that a driver runs: 1000 times its major number, and 10 times the minor one.
#[expect(unsafe_code, reason = "a function of a library that is known at run time only")]
fn newest_cuda(driver: &PathBuf) -> Option<c_int> {
    // SAFETY: the driver's library, which everything that follows loads as well. What cannot be loaded is
    // said there.
    let library = unsafe { Library::new(driver) }.ok()?;
    // SAFETY: declared so in `cuda.h`. It needs no initialization and fills in one number.
    let version =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0") };
    let mut newest = 0;
    // SAFETY: as above.
    (unsafe { version.ok()?(&raw mut newest) } == 0).then_some(newest)
}

/// Why a driver that runs CUDA up to `newest` cannot run these libraries, if it cannot. Within a major number
/// all can.
fn too_old(newest: c_int, libraries: &[PathBuf]) -> Option<String> {
    let release = |path: &PathBuf| -> Option<c_int> {
        path.file_name()?.to_str()?.strip_prefix("libcudart.so.")?.split('.').next()?.parse().ok()
    };
    let needed = libraries.iter().find_map(release)?;
    (newest / 1000 < needed).then(|| {
        format!(
            "its driver runs CUDA up to {}.{}, and this build of ONNX Runtime is for CUDA {needed}: update the driver, or name \
             a build for CUDA {} in ORT_DYLIB_PATH",
            newest / 1000,
            newest % 1000 / 10,
            newest / 1000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_the_environment_hides_is_named_with_those_that_it_shows() {
        #[rustfmt::skip]
        let cases = [
            ("0",                 0, None),
            ("3,1",               1, None),
            (" 3 , GPU-8f2a",     1, None),
            ("MIG-5c89",          0, None),
            ("",                  0, Some("CUDA_VISIBLE_DEVICES= hides all GPUs")),
            ("-1",                0, Some("CUDA_VISIBLE_DEVICES=-1 hides all GPUs")),
            ("none",              2, Some("CUDA_VISIBLE_DEVICES=none hides all GPUs")),
            ("3",                 3, Some("CUDA_VISIBLE_DEVICES=3 shows one GPU, which is cuda:0 then")),
            ("3,1",               2, Some("CUDA_VISIBLE_DEVICES=3,1 shows 2 GPUs, which are cuda:0 to cuda:1 then")),
            ("0,-1,1",            1, Some("CUDA_VISIBLE_DEVICES=0,-1,1 shows one GPU, which is cuda:0 then")),
            ("MIG-5c89,MIG-77aa", 1, Some("CUDA_VISIBLE_DEVICES=MIG-5c89,MIG-77aa shows a MIG device, of which a process has one: \
                                           cuda:0")),
        ];
        for (listed, index, want) in cases {
            assert_eq!(hidden(listed, index).as_deref(), want, "{listed}");
        }
    }

    #[test]
    fn a_driver_of_an_older_cuda_than_the_build_is_told_apart() {
        let libraries = |name: &str| ["/lib/libcuda.so.1", "/lib/libcublas.so.12", name].map(PathBuf::from);
        for (newest, name, want) in [
            (13_000, "/lib/libcudart.so.13", None),
            (12_020, "/lib/libcudart.so.12", None),
            (13_010, "/lib/libcudart.so.12", None),
            (
                12_080,
                "/lib/libcudart.so.13",
                Some("its driver runs CUDA up to 12.8, and this build of ONNX Runtime is for CUDA 13"),
            ),
            (0, "/lib/libsomething.so", None),
        ] {
            let reason = too_old(newest, &libraries(name));
            assert_eq!(reason.is_some(), want.is_some(), "{newest} {name}");
            assert!(reason.unwrap_or_default().starts_with(want.unwrap_or_default()));
        }
    }

    #[test]
    fn a_file_that_is_no_driver_says_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(newest_cuda(&file.path().to_owned()), None);
        assert!(check(Device::Cpu, &[file.path().to_owned()]).is_ok());
    }
}
