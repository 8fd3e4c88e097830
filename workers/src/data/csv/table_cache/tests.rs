//! Folders of tables: who makes one, who waits, what goes.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, SystemTime};
use std::{iter, thread};

use super::lock::open_lock;
use super::removal::bytes_in;
use super::seal::SEAL;
use super::*;

fn step() -> io::Result<()> {
    Ok(())
}

/// Writes a table of so many bytes of samples.
fn writes(bytes: usize) -> impl FnMut(&Path, &mut Step<'_>) -> Result<(), DataError> {
    move |folder, _| {
        for (name, bytes) in [(SAMPLES, vec![0; bytes]), (LABELS, vec![1, 2]), (ABOUT, b"{}".to_vec())] {
            fs::write(folder.join(name), bytes).unwrap();
        }
        Ok(())
    }
}

fn obtain(
    cache: &TableCache,
    key: &str,
    step: &mut Step<'_>,
    write: impl FnMut(&Path, &mut Step<'_>) -> Result<(), DataError>,
) -> Result<Held, DataError> {
    cache.obtain(key, Path::new("all.csv"), step, write)
}

fn names(cache: &TableCache) -> Vec<String> {
    let mut names: Vec<String> =
        cache.folders().map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Says when a table was used last, which a clock may not tell apart.
fn used_at(cache: &TableCache, key: &str, second: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
    open_lock(&cache.folder.join(key).join(LOCK)).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_table_is_written_once_and_found_by_whoever_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TableCache::at(&folder.path().join("tables"));
    let first = obtain(&cache, "a", &mut step, writes(3)).unwrap();
    let again = obtain(&cache, "a", &mut step, |_, _| panic!("it is there")).unwrap();
    assert_eq!(fs::read(again.folder.join(SAMPLES)).unwrap(), [0; 3]);
    assert_eq!((first.folder, names(&cache)), (again.folder, vec!["a".to_owned()]));
}

/// What may become of the bytes of a file; `None`: it is gone.
type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;

const DAMAGES: [(&str, Damage); 5] = [
    ("a flipped bit", |bytes| Some(flipped(bytes))),
    ("truncated", |bytes| Some(bytes[..bytes.len() - 1].to_vec())),
    ("empty", |_| Some(Vec::new())),
    ("missing", |_| None),
    ("garbage", |bytes| Some(vec![b'?'; bytes.len()])),
];

fn flipped(mut bytes: Vec<u8>) -> Vec<u8> {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes
}

fn damage(path: &Path, damage: Damage) {
    match damage(fs::read(path).unwrap()) {
        Some(bytes) => fs::write(path, bytes).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
}

#[test]
fn a_table_with_a_damaged_file_is_made_again_beside_those_who_read_it() {
    for (file, (name, how)) in
        [SAMPLES, LABELS, ABOUT, SEAL].into_iter().flat_map(|file| iter::repeat(file).zip(DAMAGES))
    {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let mut before = obtain(&cache, "a", &mut step, writes(3)).unwrap();
        damage(&folder.path().join("a").join(file), how);
        let left = (before.samples.metadata().unwrap().len(), before.labels.metadata().unwrap().len());
        let after = obtain(&cache, "a", &mut step, writes(5)).unwrap();
        let read = |mut file: &File| {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut file, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(&after.samples), [0; 5], "{file}: {name}");
        assert_eq!((read(&after.labels), read(&after.about)), (vec![1, 2], b"{}".to_vec()), "{file}: {name}");
        // What is open is not written into.
        let now = (read(&before.samples).len() as u64, read(&before.labels).len() as u64);
        assert_eq!(now, left, "{file}: {name}");
        before = after;
        obtain(&cache, "a", &mut step, |_, _| panic!("{file}: {name}: it is whole")).unwrap();
        assert_eq!((names(&cache), before.folder), (vec!["a".to_owned()], folder.path().join("a")));
    }
}

#[test]
fn of_two_that_find_the_damage_at_once_one_makes_the_table_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TableCache::at(folder.path());
    drop(obtain(&cache, "a", &mut step, writes(3)).unwrap());
    damage(&folder.path().join("a").join(ABOUT), |bytes| Some(flipped(bytes)));
    // Both read the samples of the damaged table before either goes on.
    let (both, written) = (Barrier::new(2), Mutex::new(0));
    let find = || {
        let mut is_first = true;
        let mut step = || {
            if std::mem::take(&mut is_first) {
                both.wait();
            }
            Ok(())
        };
        let held = obtain(&cache, "a", &mut step, |folder, step| {
            *written.lock().unwrap() += 1;
            writes(5)(folder, step)
        });
        held.unwrap().samples.metadata().unwrap().len()
    };
    let found = thread::scope(|scope| {
        let other = scope.spawn(find);
        [find(), other.join().unwrap()]
    });
    assert_eq!((found, *written.lock().unwrap(), names(&cache)), ([5, 5], 1, vec!["a".to_owned()]));
}

#[test]
fn what_is_wrong_with_a_table_is_said_with_its_file_table() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TableCache::at(folder.path());
    for (file, bytes, why) in [
        (SAMPLES, &b"\0\0"[..], "samples: 2 bytes, of 3 that were written"),
        (LABELS, b"\x01\x03", "labels: other bytes than were written"),
        (ABOUT, b"", "about.json: 0 bytes, of 2 that were written"),
        (SEAL, b"", "digests.json: EOF while parsing"),
    ] {
        let held = obtain(&cache, "a", &mut step, writes(3)).unwrap();
        fs::write(held.folder.join(file), bytes).unwrap();
        let found = seal::open(&held.folder, &held.samples, false, &mut || Ok(())).unwrap();
        let Opened::Damaged(said) = found else { panic!("{file} is damaged") };
        assert!(said.starts_with(why), "{said}");
    }
}

#[test]
fn of_two_that_come_at_once_one_writes_and_the_other_waits() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TableCache::at(folder.path());
    let (begun, begins) = std::sync::mpsc::channel();
    let (waits, waited) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        let cache = &cache;
        let first = scope.spawn(move || {
            obtain(cache, "a", &mut step, |folder, step| {
                begun.send(()).unwrap();
                waited.recv().unwrap();
                writes(3)(folder, step)
            })
        });
        begins.recv().unwrap();
        let mut look = || {
            let _ = waits.send(());
            Ok(())
        };
        obtain(cache, "a", &mut look, |_, _| panic!("the other one writes")).unwrap();
        first.join().unwrap().unwrap();
    });
}

#[test]
fn a_table_that_failed_leaves_nothing_and_one_that_was_killed_goes_before_the_next_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TableCache::at(folder.path());
    let failed = obtain(&cache, "a", &mut step, |folder, step| {
        writes(3)(folder, step)?;
        Err(cache.no_room(folder, 3))
    });
    assert_eq!((failed.map(|_| ()).unwrap_err().code(), names(&cache)), ("E611", vec![]));
    // What processes leave that are killed before the lock, within the numbers, and while they remove.
    for left in ["b.part", "c.part", "d.5.gone"] {
        fs::create_dir(folder.path().join(left)).unwrap();
    }
    fs::write(folder.path().join("c.part").join(LOCK), "").unwrap();
    fs::write(folder.path().join("c.part").join(SAMPLES), "half").unwrap();
    fs::write(folder.path().join("d.5.gone").join(SAMPLES), "whole").unwrap();
    let held = obtain(&cache, "c", &mut step, writes(9)).unwrap();
    assert_eq!(fs::read(held.folder.join(SAMPLES)).unwrap(), [0; 9]);
    assert_eq!(names(&cache), ["c"]);
}

#[test]
fn of_tables_that_nobody_reads_those_stay_that_were_used_last() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TableCache::at(folder.path());
    let held = obtain(&cache, "held", &mut step, writes(100)).unwrap();
    for (key, used) in [("a", 3), ("b", 1), ("c", 2)] {
        obtain(&cache, key, &mut step, writes(10)).unwrap();
        used_at(&cache, key, used);
    }
    let bytes = bytes_in(&folder.path().join("a"));
    assert!(!cache.remove_unused(3 * bytes));
    assert!(cache.remove_unused(3 * bytes - 1));
    assert_eq!(names(&cache), ["a", "c", "held"]);
    assert!(cache.remove_unused(0));
    assert_eq!(names(&cache), ["held"]);
    drop(held);
    assert!(cache.remove_unused(0));
}

#[test]
fn a_full_disk_takes_tables_that_nobody_reads_and_is_said_with_what_is_needed_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let free_bytes = |folder: &Path| Some(if folder.join("old").exists() { 5 } else { 50 });
    let cache = TableCache { free_bytes, ..TableCache::at(folder.path()) };
    obtain(&cache, "old", &mut step, writes(10)).unwrap();
    let table = Path::new("all.csv");
    cache.make_room(table, 5, 5).unwrap();
    assert_eq!(names(&cache), ["old"]);
    cache.make_room(table, 50, 50).unwrap();
    assert_eq!(names(&cache), [""; 0]);
    let full = cache.make_room(table, 2_000_001, 51).unwrap_err().to_string();
    assert!(full.starts_with("[E611] all.csv as numbers takes about 3 MB in "), "{full}");
}

#[test]
fn a_place_that_fails_is_named_with_its_table_and_how_to_choose_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = TableCache::at(&file.join("tables"));
    let refused =
        obtain(&cache, "a", &mut step, |_, _| panic!("there is no folder")).map(|_| ()).unwrap_err();
    let said = refused.to_string();
    let place = file.join("tables");
    assert!(
        said.starts_with(&format!("[E630] cannot keep all.csv as numbers in {}", place.display())),
        "{said}"
    );
    assert!(refused.hint().unwrap().contains("SYNCLINE_CACHE") && refused.is_machine_specific());
}

#[test]
fn what_fails_in_the_cache_is_a_full_disk_or_its_place_table() {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
    let cache = TableCache::at(Path::new("tables"));
    for (kind, needed_bytes, code) in [
        (StorageFull, 5, "E611"),
        (QuotaExceeded, 5, "E611"),
        // Nobody knows yet how much the table takes.
        (StorageFull, 0, "E630"),
        (PermissionDenied, 5, "E630"),
    ] {
        let failed = cache.failed(Path::new("all.csv"), Path::new("tables/a"), needed_bytes, kind.into());
        assert_eq!(failed.code(), code, "{kind}, {needed_bytes} bytes");
    }
}
