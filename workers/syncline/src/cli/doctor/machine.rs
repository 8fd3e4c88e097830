//! What the machine offers: this binary, native parts, open files, disk.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use syncline_kit::{Device, Found, KitError};
use syncline_rpc::folder;
use syncline_runtime::Runtime;
use syncline_workers::client::{load_token, state_dir, token_file};

use super::{Exit, Finding, Verdict};
use crate::cli::{ConnectionArgs, release, say, support::connection::shell_word};

/// A worker needs a few descriptors, an engine one per connection.
const FEW_OPEN_FILES: u64 = 1_024;

pub(crate) fn check(connection: &ConnectionArgs, device: Device) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("release", release())];
    findings.extend(device_parts(device));
    let server = part("redis server", syncline_kit::redis_server(&say), |found| server_version(&found.path));
    findings.push(match connection.engine {
        // What starts a server is `syncline up`, on the machine of the engine.
        Some(_) if server.verdict == Verdict::Fail => Finding::warn(
            server.check,
            server.found,
            format!("only `syncline up` needs it here: {}", server.hint),
        ),
        _ => server,
    });
    findings.push(open_files());
    match state_dir(connection.state_dir.as_deref()) {
        Ok(dir) => {
            findings.push(disk(&dir));
            // As [`ConnectionArgs::find`] looks for it.
            let of_running = || connection.running().filter(|_| connection.engine.is_none());
            let held = || of_running().map(|running| (running.token_file, Needed::ByRunning));
            let named = connection.token_file.clone().map(|file| (file, Needed::Named));
            let (file, needed) =
                named.or_else(held).unwrap_or_else(|| (token_file(&dir), Needed::ByNextStart));
            findings.push(token(&file, needed));
        }
        Err(error) => findings.push(Finding::fail(
            "state",
            Exit::Usage,
            error.to_string(),
            error.hint().unwrap_or_default(),
        )),
    }
    findings
}

/// What computing on the device needs. Whether it works shows when a worker starts.
fn device_parts(device: Device) -> Vec<Finding> {
    let parts = match syncline_kit::for_device(device, &say) {
        Ok(parts) => parts,
        Err(error @ (KitError::NoDriver { .. } | KitError::MissingCuda { .. })) => {
            return vec![Finding::fail(
                "gpu",
                Exit::Internal,
                error.to_string(),
                error.hint().unwrap_or_default(),
            )];
        }
        Err(error) => return vec![part("onnx runtime", Err(error), |_| None)],
    };
    let mut findings = vec![match Runtime::load(&parts.onnxruntime.path) {
        Ok(_) => part("onnx runtime", Ok(parts.onnxruntime), |found| library_version(&found.path)),
        Err(error) => {
            Finding::fail("onnx runtime", Exit::Internal, error.to_string(), error.hint().unwrap_or_default())
        }
    }];
    if device != Device::Cpu {
        let libraries = parts.preload.iter().map(|path| path.display().to_string());
        findings.push(Finding::ok("gpu", libraries.collect::<Vec<_>>().join(", ")));
    }
    findings
}

fn part(
    check: &'static str,
    found: Result<Found, KitError>,
    version: impl Fn(&Found) -> Option<String>,
) -> Finding {
    match found {
        Ok(found) => {
            let version = version(&found).unwrap_or_else(|| "of unknown version".into());
            Finding::ok(check, format!("{version}, {} ({})", found.path.display(), found.origin))
        }
        Err(error) => {
            Finding::fail(check, Exit::Internal, error.to_string(), error.hint().unwrap_or_default())
        }
    }
}

/// `libonnxruntime.so.1.31.1` says it in its name.
fn library_version(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.split_once(".so.")?.1.to_owned();
    name.starts_with(|c: char| c.is_ascii_digit()).then_some(name)
}

fn server_version(path: &Path) -> Option<String> {
    let said = Command::new(path).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.split_whitespace().find_map(|word| word.strip_prefix("v=")).map(str::to_owned)
}

fn open_files() -> Finding {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = limits.lines().find_map(|l| l.strip_prefix("Max open files")?.split_whitespace().next());
    match soft.map(|s| s.parse().unwrap_or(u64::MAX)) {
        None => Finding::warn("open files", "the limit is not known", "`ulimit -n` shows it"),
        Some(n) if n < FEW_OPEN_FILES => Finding::warn(
            "open files",
            format!("at most {n}"),
            "raise it before you start: `ulimit -n 65536`",
        ),
        Some(u64::MAX) => Finding::ok("open files", "unlimited"),
        Some(n) => Finding::ok("open files", format!("at most {n}")),
    }
}

fn disk(dir: &Path) -> Finding {
    // Somebody else's: what is in it cannot be looked at, nor whether a cluster runs on it.
    let readable =
        dir.try_exists().and_then(|there| if there { fs::read_dir(dir).map(drop) } else { Ok(()) });
    if let Err(error) = readable {
        let found = format!("[E502] cannot use {}: {error}", dir.display());
        return Finding::fail(
            "state",
            Exit::Usage,
            found,
            "be the user who owns it, or name a folder of your own: --state-dir",
        );
    }
    // The folder may not be there yet; then its nearest ancestor will hold it.
    let Some(there) = dir.ancestors().find(|p| p.exists()) else {
        return Finding::warn("state", format!("{} is nowhere", dir.display()), "name another --state-dir");
    };
    let Some(free) = folder::free_bytes(there) else {
        return Finding::warn("state", format!("{}: free disk is not known", dir.display()), "`df` shows it");
    };
    let found = format!("{}, {:.1} GB free", dir.display(), free as f64 / 1e9);
    if free < folder::LITTLE_DISK_BYTES {
        return Finding::warn("state", found, "blobs, snapshots and the Redis log are kept there: make room");
    }
    match dir.exists() && folder::others_may_enter(dir) {
        true => Finding::warn(
            "state",
            format!("{found}, open to others"),
            format!(
                "what is in it is closed; `chmod 700 {}` hides the names as well",
                shell_word(&dir.display().to_string())
            ),
        ),
        false => Finding::ok("state", found),
    }
}

/// Who needs a token file.
#[derive(Clone, Copy)]
enum Needed {
    /// Whoever named it.
    Named,
    /// A cluster that runs on this state directory, which has read it long ago.
    ByRunning,
    /// Nobody yet.
    ByNextStart,
}

fn token(file: &Path, needed: Needed) -> Finding {
    match (file.try_exists(), needed) {
        (Ok(false), Needed::ByNextStart) => {
            return Finding::ok("token", format!("{} will be made by the first start", file.display()));
        }
        (Ok(false), Needed::ByRunning) => {
            return Finding::fail(
                "token",
                Exit::Usage,
                format!("[E505] {} was removed while the cluster runs with it", file.display()),
                "what ends cannot start again, and no command finds the cluster: copy it back from a machine that has it (`chmod 600`); \
                 where none has, stop the cluster and start it again, which makes another one for everybody",
            );
        }
        _ => {}
    }
    if let Err(error) = load_token(file) {
        let cause = std::error::Error::source(&error).map_or(String::new(), |s| format!(": {s}"));
        return Finding::fail(
            "token",
            Exit::Usage,
            format!("{error}{cause}"),
            error.hint().unwrap_or_default(),
        );
    }
    let mode = fs::metadata(file).map_or(0, |m| m.permissions().mode());
    match mode & 0o077 {
        0 => Finding::ok("token", file.display().to_string()),
        _ => Finding::warn(
            "token",
            format!("{} can be read by others", file.display()),
            format!("`chmod 600 {}`", file.display()),
        ),
    }
}
