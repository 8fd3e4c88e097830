//! Tables whose numbers are on the disk: what is gathered, computed and refused is the same as of those in
//! memory.

use std::os::unix::fs::MetadataExt;
use syncline_scheduler::ids::ContentDigest;

use super::super::csv::TableCache;
use super::super::note::Note;
use super::on_disk::gathered;
use super::*;

/// As it is opened with files of more than so many bytes left on the disk.
fn opened(
    spec: &DataSpec,
    wanted: &ModelSignature,
    (most_in_memory, tables): (u64, &TableCache),
    form: Form<'_>,
) -> Result<Dataset, DataError> {
    let form = Form { most_in_memory, tables: Some(tables), ..form };
    Dataset::open_as(spec, wanted, form, &mut || Ok(())).map(|(data, _)| data)
}

fn entries(folder: &TempDir) -> Vec<PathBuf> {
    std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Opens it in memory, with its larger files on the disk, and with all of them there, and compares the three.
fn compare(name: &str, spec: &DataSpec, wanted: &ModelSignature, form: Form<'_>) {
    let folder = TempDir::new().unwrap();
    let cache = TableCache::at(folder.path());
    let [memory, mixed, disk, again] =
        [1 << 30, 120, 0, 0].map(|most| opened(spec, wanted, (most, &cache), form));
    let told = |error: &DataError| (error.code(), error.to_string(), error.hint());
    let memory = match memory {
        Ok(memory) => memory,
        Err(error) => {
            let want = told(&error);
            for found in [mixed, disk, again] {
                assert_eq!(found.map(|_| ()).map_err(|error| told(&error)), Err(want.clone()), "{name}");
            }
            return;
        }
    };
    assert!(!entries(&folder).is_empty(), "{name}");
    let rows: Vec<u32> = (0..memory.len() as u32).map(|n| n * 37 % memory.len() as u32).collect();
    for found in [mixed, disk, again].map(Result::unwrap) {
        let parts = |data: &Dataset| data.parts(spec, 3).unwrap();
        assert_eq!(parts(&found), parts(&memory), "{name}");
        assert_eq!(gathered(&found, &rows), gathered(&memory, &rows), "{name}");
        assert_eq!(found.label_counts(&rows).unwrap(), memory.label_counts(&rows).unwrap(), "{name}");
        assert_eq!(found.label_deviation(&rows).unwrap(), memory.label_deviation(&rows).unwrap(), "{name}");
        let names = |data: &Dataset| (data.class_names().to_vec(), data.separator());
        assert_eq!(names(&found), names(&memory), "{name}");
        assert_eq!(found.label_columns(), memory.label_columns(), "{name}");
        let standard = |data: &Dataset| {
            data.standard(&rows, (0, &wanted.inputs[0]), ChannelAxis::First).map_err(|e| e.code())
        };
        assert_eq!(standard(&found), standard(&memory), "{name}");
    }
}

/// A table of so many rows of two numbers and a label, which `row` writes.
fn table(
    folder: &TempDir,
    name: &str,
    head: &str,
    rows: std::ops::Range<u32>,
    row: fn(u32) -> String,
) -> PathBuf {
    let text = rows.map(|n| row(n) + "\n").collect::<String>();
    write(folder, name, format!("{head}{text}").as_bytes())
}

#[test]
fn a_table_gives_the_same_numbers_from_the_disk_as_from_memory() {
    let folder = TempDir::new().unwrap();
    let whole = |n: u32| format!("{},{},{}", n * 7 % 256, n % 5, n % 3);
    let fractions = |n: u32| format!("{},-0.{n},{}", f64::from(n) * 1.1, n % 3);
    let texts = |n: u32| format!("{},{n}.5,{}", n % 9, ["wolf", "ant", "bee"][(n * n % 3) as usize]);
    let turned = |n: u32| format!("{},{},{n}.25", ["bee", "ant"][(n % 2) as usize], n % 7);
    let far = |n: u32| format!("{};{};{}", 1_700_000_000 + n, n, 4_000_000 + n % 3);
    let file = |name: &str, head: &str, row| table(&folder, name, head, 0..60, row);
    let whole = file("whole.csv", "", whole);
    let fractions = file("fractions.csv", "\u{feff}# by hand\na,b,c\n", fractions);
    let texts = file("texts.csv", "a,b,kind\r\n", texts);
    let short = table(&folder, "short.csv", "kind,a,b\n", 0..5, turned);
    let turned = file("turned.csv", "kind,a,b\n", turned);
    let far = file("far.csv", "", far);
    let packed = write(&folder, "packed.csv.gz", &gzip(&std::fs::read(&whole).unwrap()));
    let packed_texts = write(&folder, "texts.csv.gz", &gzip(&std::fs::read(&texts).unwrap()));
    let members = [&gzip(b"1,2,0\n3,4,")[..], &gzip(b"1\n5,6,2\n")].concat();
    let members = write(&folder, "members.csv.gz", &members);
    let named = |path: &Path| named_csv_spec(path, &["kind"]);
    let parts =
        DataSpec::new(CsvSource::new(vec![text(&texts), text(&turned), text(&short)]).label_names(["kind"]))
            .with(|d| d.test = Some(named(&short).source))
            .with(|d| d.validation = Some(CsvSource::new(&turned).into()));
    let plain = |path: &Path| csv_spec(path, 1, 0);
    let scaled = |d: &mut DataSpec| (d.scale, d.mean, d.std) = (0.3, vec![0.1, 7.7], vec![1.3, 0.9]);
    let last = ModelSignature { label: Some(label(Target::Values, &[])), ..wants(CLASSES) };
    let ids = wants_input(DataElement::I64, &[Some(2)]);
    #[rustfmt::skip]
    let cases = [
        ("whole numbers", plain(&whole), wants(CLASSES)),
        ("ids",           plain(&whole), ids.clone()),
        ("truth",         plain(&whole), wants_input(DataElement::Bool, &[Some(2)])),
        ("scaled",        plain(&whole).with(scaled), wants(CLASSES)),
        ("fractions",     plain(&fractions), wants(CLASSES)),
        ("fractions as ids", plain(&fractions), ids),
        ("scaled fractions", plain(&fractions).with(scaled), wants(CLASSES)),
        ("standardized",  plain(&fractions).with(|d| d.standardize = true), wants(CLASSES)),
        ("times",         plain(&far).with(|d| d.standardize = true), last.clone()),
        ("times as classes", plain(&far), wants(CLASSES)),
        ("every fifth",   plain(&whole).with(|d| d.split = Split::TestEvery(5)), wants(CLASSES)),
        ("stratified",    plain(&texts).with(|d| d.split = Split::TestPercent(20)), wants(CLASSES)),
        ("held out",      plain(&texts).with(|d| d.validation_percent = Some(20)), wants(CLASSES)),
        ("texts",         named(&texts), wants(CLASSES)),
        ("two labels",    named_csv_spec(&fractions, &["c", "a"]), ModelSignature { label: Some(label(Target::Values, &[Some(2)])), ..last }),
        ("no label",      csv_spec(&whole, 0, 0), ModelSignature { label: None, ..wants(CLASSES) }),
        ("several files, a test set and a validation set", parts, wants(CLASSES)),
        ("packed",        plain(&packed), wants(CLASSES)),
        ("packed, with a header and texts", named(&packed_texts), wants(CLASSES)),
        ("packed in two members", plain(&members), wants(CLASSES)),
        ("packed behind plain", DataSpec::new(CsvSource::new(vec![text(&whole), text(&packed)])), wants(CLASSES)),
    ];
    for (name, spec, wanted) in cases {
        compare(name, &spec, &wanted, Form::default());
    }
    // Files without labels, by the names of a training set that is on the disk as well.
    let form =
        Form { like: Some(&parts_of(&texts)), passes_over_label: true, is_other: true, ..Form::default() };
    compare("other files", &named(&turned), &ModelSignature { label: None, ..wants(CLASSES) }, form);
}

#[test]
fn whole_numbers_become_the_same_whether_fractions_stand_beside_them_or_not() {
    let folder = TempDir::new().unwrap();
    let whole: String =
        (0..50).map(|n| format!("{},{},{}\n", n * n * 5_003 % 16_777_216, -n, n % 3)).collect();
    let rows: Vec<u32> = (0..50).collect();
    for standardize in [false, true] {
        let found = ["", "0.5,0.25,0\n"].map(|more| {
            let path = write(&folder, "data.csv", format!("{whole}{more}").as_bytes());
            let spec = csv_spec(&path, 1, 0).with(|d| (d.scale, d.standardize) = (0.3, standardize));
            let spec = if standardize { spec } else { spec.with(|d| d.mean = vec![0.1, 7.7]) };
            gathered(&Dataset::open(&spec, &wants(CLASSES)).unwrap(), &rows)
        });
        assert_eq!(found[0], found[1], "standardize = {standardize}");
    }
}

#[test]
fn a_packed_table_that_is_cut_or_damaged_is_refused_as_of_one_in_memory_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let whole = gzip("1,2,0\n".repeat(300_000).as_bytes());
    let checksum = whole.len() - 8;
    let flipped = |at: usize| [&whole[..at], &[!whole[at]], &whole[at + 1..]].concat();
    for (name, bytes) in [
        ("no byte", Vec::new()),
        ("within the head", whole[..5].to_vec()),
        ("within the samples", whole[..whole.len() / 2].to_vec()),
        ("without the checksum", whole[..checksum].to_vec()),
        ("another checksum", flipped(checksum)),
    ] {
        let spec = csv_spec(&write(&folder, "data.csv.gz", &bytes), 1, 0);
        compare(name, &spec, &wants(CLASSES), Form::default());
        let tables = TempDir::new().unwrap();
        let refused = opened(&spec, &wants(CLASSES), (0, &TableCache::at(tables.path())), Form::default());
        assert_eq!(refused.unwrap_err().code(), "E330", "{name}");
        assert!(entries(&tables).is_empty(), "{name}");
    }
}

fn parts_of(path: &Path) -> DataSpec {
    let spec = named_csv_spec(path, &["kind"]);
    let digest = Dataset::open_hashed(&spec, &wants(CLASSES)).unwrap().1.all;
    DataSpec { digest: Some(digest), ..spec }
}

#[test]
fn what_is_wrong_with_a_table_is_said_as_of_one_in_memory_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let good = "1,2,0\n".repeat(100);
    #[rustfmt::skip]
    let cases = [
        ("no number",    format!("{good}1,x,0\n{good}"),   "E335"),
        ("comma",        format!("{good}1,\"1,5\",0\n"),   "E589"),
        ("short line",   format!("{good}1,2\n"),           "E334"),
        ("empty line",   format!("{good}\n{good}"),        "E334"),
        ("open quote",   format!("{good}1,\"2,0\n"),       "E333"),
        ("unknown class", format!("{good}1,2,7\n{good}"),  "E337"),
        ("infinite",     format!("{good}1,inf,2\n{good}"), "E336"),
        ("too large",    format!("{good}1,1e400,2\n{good}"), "E631"),
        ("half texts",   format!("1,2,a\n{good}"),         "E582"),
        ("no sample",    "a,b,c\n".to_owned(),             "E333"),
    ];
    for (name, text, code) in cases {
        let spec = csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0);
        compare(name, &spec, &wants(CLASSES), Form::default());
        let tables = TempDir::new().unwrap();
        let refused = opened(&spec, &wants(CLASSES), (0, &TableCache::at(tables.path())), Form::default());
        assert_eq!(refused.unwrap_err().code(), code, "{name}");
        // Numbers that do not fit the model are numbers nevertheless.
        assert_eq!(entries(&tables).len(), usize::from(["E336", "E337"].contains(&code)), "{name}");
    }
}

#[test]
fn the_same_bytes_and_columns_are_one_table_whatever_its_name_and_others_are_another() {
    let folder = TempDir::new().unwrap();
    let tables = TempDir::new().unwrap();
    let cache = TableCache::at(tables.path());
    let file = |name, text: &str| write(&folder, name, text.as_bytes());
    let spec = |path: &Path, label: &str| named_csv_spec(path, &[label]);
    let [a, b] = ["a.csv", "b.csv"].map(|name| file(name, "a,b,c\n1,2,0\n3,2,1\n"));
    let other = file("other.csv", "a,b,c\n1,2,0\n3,1,1\n");
    for (spec, count) in [(spec(&a, "c"), 1), (spec(&b, "c"), 1), (spec(&a, "b"), 2), (spec(&other, "c"), 3)]
    {
        let data = opened(&spec, &wants(CLASSES), (0, &cache), Form::default()).unwrap();
        assert_eq!((data.len(), entries(&tables).len()), (2, count));
    }
}

#[test]
fn a_table_that_is_written_into_while_it_is_read_is_refused_and_not_kept() {
    let folder = TempDir::new().unwrap();
    let tables = TempDir::new().unwrap();
    let cache = TableCache::at(tables.path());
    let path = write(&folder, "data.csv", "1,2,0\n".repeat(10_000).as_bytes());
    let mut steps = 0;
    let mut step = || {
        steps += 1;
        // Behind the digest, within the samples.
        if steps == 2 {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)?;
        }
        Ok(())
    };
    let form = Form { most_in_memory: 0, tables: Some(&cache), ..Form::default() };
    let found = Dataset::open_as(&csv_spec(&path, 1, 0), &wants(CLASSES), form, &mut step);
    assert_eq!(found.map(|_| ()).unwrap_err().code(), "E619");
    assert!(entries(&tables).is_empty());
}

#[test]
fn a_damaged_table_is_made_again_and_whoever_reads_it_goes_on() {
    let folder = TempDir::new().unwrap();
    let tables = TempDir::new().unwrap();
    let cache = TableCache::at(tables.path());
    let row = |n: u32| format!("{n},-0.5,{}", n % 3);
    let spec = csv_spec(&table(&folder, "data.csv", "", 0..60, row), 1, 0);
    let open = || opened(&spec, &wants(CLASSES), (0, &cache), Form::default()).unwrap();
    let rows: Vec<u32> = (0..60).collect();
    let first = open();
    let want = gathered(&first, &rows);
    let of_another_version = r#"{"rows":60,"bits":16}"#;
    for (name, bytes) in
        [("about.json", of_another_version), ("about.json", ""), ("about.json", "?"), ("digests.json", "{}")]
    {
        let [key] = entries(&tables).try_into().unwrap();
        std::fs::write(key.join(name), bytes).unwrap();
        assert_eq!(
            (gathered(&open(), &rows), gathered(&first, &rows)),
            (want.clone(), want.clone()),
            "{name}: {bytes}"
        );
        let [again] = entries(&tables).try_into().unwrap();
        assert_ne!(std::fs::read(again.join(name)).unwrap(), bytes.as_bytes());
    }
    for name in ["samples", "labels"] {
        let [key] = entries(&tables).try_into().unwrap();
        let mut bytes = std::fs::read(key.join(name)).unwrap();
        bytes[7] ^= 0x10;
        std::fs::write(key.join(name), bytes).unwrap();
        assert_eq!(gathered(&open(), &rows), want, "{name}");
    }
}

#[test]
fn a_table_that_was_looked_through_is_passed_over_until_it_is_changed_whatever_its_time_says() {
    let folder = TempDir::new().unwrap();
    let tables = TempDir::new().unwrap();
    let cache = TableCache::at(tables.path());
    let path = write(&folder, "data.csv", b"1,2,0\n3,4,1\n");
    let spec = csv_spec(&path, 1, 0);
    let digest = Dataset::open_hashed(&spec, &wants(CLASSES)).unwrap().1;
    let spec = spec.with(|d| d.digest = Some(digest.all));
    let form = Form { most_in_memory: 0, tables: Some(&cache), ..Form::default() };
    // How often something was read.
    let open = || {
        let mut steps = 0;
        let mut step = || {
            steps += 1;
            Ok(())
        };
        let found = Dataset::open_as(&spec, &wants(CLASSES), form, &mut step);
        found.map(|(data, found)| (samples(&data), found, steps)).map_err(|error| error.code())
    };
    let numbers = vec![1.0, 2.0, 3.0, 4.0];
    open().unwrap();
    std::fs::remove_dir_all(cache.notes()).unwrap();
    let (.., read) = open().unwrap();
    assert_eq!(open(), Ok((numbers.clone(), digest.clone(), read - 1)));
    // As many bytes, and the time of before.
    let before = std::fs::metadata(&path).unwrap();
    let is_as_before = || std::fs::metadata(&path).unwrap().ctime_nsec() == before.ctime_nsec();
    while is_as_before() {
        std::fs::write(&path, "1,2,0\n3,5,1\n").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    }
    assert_eq!(open(), Err("E331"));
    // Where a file system hides it, numbers are still those of the job, and none of others is made.
    Note::of(&spec, &cache.notes()).unwrap().write();
    assert_eq!(open().map(|(samples, ..)| samples), Ok(numbers));
    for table in entries(&tables).iter().filter(|entry| **entry != cache.notes()) {
        std::fs::remove_dir_all(table).unwrap();
    }
    assert_eq!((open(), entries(&tables)), (Err("E331"), vec![cache.notes()]));
}

#[test]
fn data_whose_digest_nobody_knows_is_read_whatever_was_noted() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,2,0\n");
    assert_eq!(Note::of(&csv_spec(&path, 1, 0), folder.path()), None);
    let several = DataSpec::new(CsvSource::new(vec![text(&path), text(&path)]));
    assert_eq!(Note::of(&several.with(|d| d.digest = Some(ContentDigest::LOWEST)), folder.path()), None);
}
