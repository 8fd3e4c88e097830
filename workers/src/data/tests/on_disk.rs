//! Arrays that stay in their files: what is gathered, computed and refused is the same as of those in memory.

use syncline_scheduler::{ids::ContentDigest, spec::Augment};
use zip::CompressionMethod;

use super::super::contents::{Contents, DiskFile};
use super::super::source::SourceFiles;
use super::numpy::{archive, fortran, npy};
use super::*;

/// As it is opened, with arrays of more than so many bytes left on the disk.
fn opened(spec: &DataSpec, wanted: &ModelSignature, most_in_memory: u64) -> Result<Dataset, DataError> {
    let form = Form { most_in_memory, ..Form::default() };
    Dataset::open_as(spec, wanted, form, &mut || Ok(())).map(|(data, _)| data)
}

/// In memory, and on the disk.
fn both(spec: &DataSpec, wanted: &ModelSignature) -> [Dataset; 2] {
    [1 << 30, 0].map(|most| opened(spec, wanted, most).unwrap())
}

/// Inputs and label of these rows, and what they look like when they train.
pub(super) fn gathered(data: &Dataset, rows: &[u32]) -> Vec<(ElementType, Vec<usize>, Vec<f64>)> {
    let mut batch = data.batch();
    let mut all = Vec::new();
    for epoch in [None, Some(3)] {
        match epoch {
            None => data.gather(rows, &mut batch).unwrap(),
            Some(epoch) => data.gather_to_train(rows, Pass { seed: 5, epoch }, &mut batch).unwrap(),
        }
        all.extend(batch.inputs().chain(batch.label()).map(|view| {
            let element = view.element();
            let (shape, numbers) = numbers(view);
            (element, shape, numbers)
        }));
    }
    all
}

fn le_f32(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

const ROWS: [&[u32]; 4] = [&[0, 1, 2, 3], &[3, 0, 2, 2], &[1], &[]];

#[test]
fn batches_are_the_same_in_every_format_and_type() {
    let folder = TempDir::new().unwrap();
    let floats = le_f32(&[0.5, -1.0, 2.0, 4.0, 8.0, 0.25, -3.0, 7.0]);
    let halves: Vec<u8> =
        (0..8u8).flat_map(|n| half::f16::from_f32(f32::from(n) / 4.0).to_le_bytes()).collect();
    let wide: Vec<u8> = (0..8u32).flat_map(|n| (f64::from(n) * 0.1).to_le_bytes()).collect();
    let ids: Vec<u8> = (0..8i64).flat_map(|n| (n * 1000).to_le_bytes()).collect();
    let classes: Vec<u8> = [2i64, 0, 1, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
    let label = npy("'<i8'", "(4,)", &classes);
    let labels = write(&folder, "y.npy", &label);
    let npy_of = |name: &str, descr: &str, data: &[u8]| {
        Source::npy(write(&folder, name, &npy(descr, "(4, 2)", data)), &labels)
    };
    let x = npy("'<f4'", "(4, 2)", &floats);
    let files: &[(&str, &[u8])] = &[("x.npy", &x), ("label.npy", &label)];
    let npz_of = |name: &str, method| Source::npz(write(&folder, name, &archive(files, method)));
    let bytes = [0, 255, 7, 8, 9, 1, 2, 3];
    let shorts: Vec<u8> = (0..8i16).flat_map(|n| (n * 100 - 300).to_be_bytes()).collect();
    let idx_of = |name: &str, kind, data: &[u8]| {
        let images = write(&folder, name, &idx(kind, &[4, 2], data));
        idx_source(&images, &write(&folder, "labels.idx", &idx(8, &[4], &[2, 0, 1, 2])))
    };
    let named = tensors(&[("x", Dtype::F32, &[4, 2], &floats), ("label", Dtype::I64, &[4], &classes)]);
    let turned = write(&folder, "turned.npy", &fortran("(4, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
    #[rustfmt::skip]
    let cases = [
        ("npy float32",     DataElement::F32,  npy_of("a.npy", "'<f4'", &floats)),
        ("npy float16",     DataElement::F32,  npy_of("b.npy", "'<f2'", &halves)),
        ("npy float64",     DataElement::F32,  npy_of("c.npy", "'<f8'", &wide)),
        ("npy bytes",       DataElement::F32,  npy_of("d.npy", "'|u1'", &bytes)),
        ("npy int64",       DataElement::I64,  npy_of("e.npy", "'<i8'", &ids)),
        ("npy as int32",    DataElement::I32,  npy_of("f.npy", "'<i8'", &ids)),
        ("npy truth",       DataElement::Bool, npy_of("g.npy", "'|b1'", &[0, 1, 1, 0, 1, 1, 0, 0])),
        ("npy Fortran",     DataElement::F32,  Source::npy(&turned, &labels)),
        ("npz stored",      DataElement::F32,  npz_of("a.npz", CompressionMethod::Stored)),
        ("npz packed",      DataElement::F32,  npz_of("b.npz", CompressionMethod::Deflated)),
        ("safetensors",     DataElement::F32,  Source::safetensors(write(&folder, "a.st", &named))),
        ("idx bytes",       DataElement::F32,  idx_of("a.idx", 8, &bytes)),
        ("idx int16",       DataElement::I32,  idx_of("b.idx", 0x0b, &shorts)),
    ];
    for (name, element, source) in cases {
        let spec = DataSpec::new(source).with(|d| (d.scale, d.mean) = (0.5, vec![0.25]));
        let [memory, disk] = both(&spec, &wants_input(element, &[Some(2)]));
        for rows in ROWS {
            assert_eq!(gathered(&disk, rows), gathered(&memory, rows), "{name}, {rows:?}");
        }
    }
}

/// Two files, a test set and a validation set, of which the small ones are in memory.
fn in_parts(folder: &TempDir) -> DataSpec {
    let file = |name: &str, first: f32, rows: usize| {
        let numbers: Vec<f32> = (0..rows * 2).map(|n| first + n as f32).collect();
        let labels: Vec<u8> = (0..rows).map(|row| (row % 3) as u8).collect();
        let (x, y) = (
            npy("'<f4'", &format!("({rows}, 2)"), &le_f32(&numbers)),
            npy("'|u1'", &format!("({rows},)"), &labels),
        );
        write(folder, name, &archive(&[("x.npy", &x), ("label.npy", &y)], CompressionMethod::Stored))
    };
    let source = Source::npz(vec![file("a.npz", 0.0, 40), file("b.npz", 100.0, 30)]);
    DataSpec::new(source)
        .with(|d| d.test = Some(Source::npz(file("c.npz", 200.0, 5))))
        .with(|d| d.validation = Some(Source::npz(file("d.npz", 300.0, 50))))
}

#[test]
fn files_behind_each_other_and_parts_in_memory_are_one_data_set() {
    let folder = TempDir::new().unwrap();
    let spec = in_parts(&folder);
    let wanted = wants_input(DataElement::F32, &[Some(2)]);
    let [memory, disk] = both(&spec, &wanted);
    // `x` of the first two and of the validation set stays on the disk, and nothing else.
    let mixed = opened(&spec, &wanted, 230).unwrap();
    let rows: Vec<u32> = (0..125).map(|n| n * 37 % 125).collect();
    for data in [&disk, &mixed] {
        assert_eq!(data.parts(&spec, 0).unwrap(), memory.parts(&spec, 0).unwrap());
        assert_eq!(gathered(data, &rows), gathered(&memory, &rows));
        assert_eq!(data.label_counts(&rows).unwrap(), memory.label_counts(&rows).unwrap());
        let standard =
            |data: &Dataset| data.standard(&rows, (0, &wanted.inputs[0]), ChannelAxis::First).unwrap();
        assert_eq!(standard(data), standard(&memory));
    }
}

#[test]
fn images_change_as_those_in_memory_do() {
    let folder = TempDir::new().unwrap();
    let pixels: Vec<u8> = (0..4 * 18).collect();
    let images = write(&folder, "x", &idx(8, &[4, 3, 3, 2], &pixels));
    let labels = write(&folder, "y", &idx(8, &[4], &[0, 1, 2, 0]));
    let spec = idx_spec(&images, &labels).with(|d| {
        d.layout = Some(AxisOrder::Nhwc);
        d.augment = Augment { flip: true, crop: 1, cutout: 0 };
    });
    let [memory, disk] = both(&spec, &wants_input(DataElement::F32, &[Some(2), Some(3), Some(3)]));
    for rows in ROWS {
        assert_eq!(gathered(&disk, rows), gathered(&memory, rows));
    }
}

#[test]
fn what_is_wrong_is_found_at_the_start_and_named_by_its_row() {
    let folder = TempDir::new().unwrap();
    // More samples than are looked through at a time.
    let rows = 1_100_000;
    let mut numbers = vec![0.0f32; rows * 2];
    numbers[rows * 2 - 3] = f32::NAN;
    let mut classes = vec![0; rows];
    let label = |classes: &[u8]| write(&folder, "y.npy", &npy("'|u1'", &format!("({rows},)"), classes));
    let x = write(&folder, "x.npy", &npy("'<f4'", &format!("({rows}, 2)"), &le_f32(&numbers)));
    let spec = DataSpec::new(Source::npy(&x, label(&classes)));
    let refused = |words: &str| {
        let error = opened(&spec, &wants(CLASSES), 0).unwrap_err().to_string();
        assert!(error.contains(words), "`{words}` is not in: {error}");
    };
    refused("[E336]");
    refused("row 1099999, column 2 of `x`: NaN");
    numbers[rows * 2 - 3] = 0.0;
    write(&folder, "x.npy", &npy("'<f4'", &format!("({rows}, 2)"), &le_f32(&numbers)));
    assert!(opened(&spec, &wants(CLASSES), 0).is_ok());
    classes[rows - 1] = 3;
    label(&classes);
    refused("row 1100000: label 3");
    write(&folder, "x.npy", &npy("'<f4'", &format!("({}, 2)", rows + 1), &le_f32(&numbers)));
    refused("does not fit into it");
    write(&folder, "x.npy", &npy("'<f4'", &format!("({}, 2)", rows - 1), &le_f32(&numbers)));
    refused("has more numbers than those of its shape");
}

#[test]
fn a_file_that_is_written_into_while_it_is_used_is_refused_and_one_that_takes_its_name_is_not_seen() {
    let folder = TempDir::new().unwrap();
    let file = |data: &[f32]| npy("'<f4'", "(4, 1)", &le_f32(data));
    let labels = write(&folder, "y.npy", &npy("'|u1'", "(4,)", &[0, 1, 2, 0]));
    let spec = DataSpec::new(Source::npy(write(&folder, "x.npy", &file(&[1.0, 2.0, 3.0, 4.0])), &labels));
    let wanted = wants(CLASSES);
    let data = opened(&spec, &wanted, 0).unwrap();
    // Another file of this name, as tools write it.
    let other = write(&folder, "other.npy", &file(&[5.0, 6.0, 7.0, 8.0]));
    std::fs::rename(&other, folder.path().join("x.npy")).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0]);

    let gather = |data: &Dataset| data.gather(&[1, 3], &mut data.batch()).map_err(|error| error.code());
    let data = opened(&spec, &wanted, 0).unwrap();
    assert_eq!(gather(&data), Ok(()));
    // A time that no clock gives by chance: files may be written twice within one tick.
    let written = std::fs::File::options().write(true).open(folder.path().join("x.npy")).unwrap();
    written.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(gather(&data), Err("E619"));
    let data = opened(&spec, &wanted, 0).unwrap();
    written.set_len(130).unwrap();
    assert_eq!(gather(&data), Err("E619"));
}

#[test]
fn a_number_that_is_too_large_is_named_by_its_row_in_the_file() {
    let folder = TempDir::new().unwrap();
    // More samples than are looked through at a time.
    let rows = 600_000;
    let mut numbers = vec![1u64; rows];
    numbers[rows - 2] = 1 << 63;
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let x = write(&folder, "x.npy", &npy("'<u8'", &format!("({rows},)"), &bytes));
    let y = write(&folder, "y.npy", &npy("'|u1'", &format!("({rows},)"), &vec![0; rows]));
    let error = opened(&DataSpec::new(Source::npy(&x, &y)), &wants(CLASSES), 0).unwrap_err();
    assert!(error.to_string().contains("row 599999, column 1: 9223372036854775808"), "{error}");
}

#[test]
fn an_array_that_is_read_into_memory_is_of_the_file_that_the_digest_is_of() {
    let folder = TempDir::new().unwrap();
    let (x, y) = (npy("'<f4'", "(2, 1)", &le_f32(&[1.0, 2.0])), npy("'|u1'", "(2,)", &[0, 1]));
    let packed = archive(&[("x.npy", &x), ("label.npy", &y)], CompressionMethod::Deflated);
    let path = write(&folder, "packed.npz", &packed);
    let form = Form { most_in_memory: 0, ..Form::default() };
    for (written_at, code) in [(None, None), (Some(1), Some("E619")), (Some(2), Some("E619"))] {
        let mut steps = 0;
        let mut step = || {
            steps += 1;
            if written_at == Some(steps) {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(steps))?;
            }
            Ok(())
        };
        let spec = DataSpec::new(Source::npz(&path));
        let found = Dataset::open_as(&spec, &wants(CLASSES), form, &mut step).map_err(|error| error.code());
        assert_eq!(found.err(), code, "{written_at:?}");
    }
}

#[test]
fn a_file_that_is_cut_short_after_its_digest_was_made_has_changed_and_is_not_malformed() {
    let folder = TempDir::new().unwrap();
    let (x, y) = (npy("'<f4'", "(2, 1)", &le_f32(&[1.0, 2.0])), npy("'|u1'", "(2,)", &[0, 1]));
    let packed = archive(&[("x.npy", &x), ("label.npy", &y)], CompressionMethod::Deflated);
    let path = write(&folder, "packed.npz", &packed);
    let mut steps = 0;
    let mut step = || {
        steps += 1;
        match steps {
            // The first of its arrays is read.
            2 => std::fs::File::options().write(true).open(&path)?.set_len(40),
            _ => Ok(()),
        }
    };
    let form = Form { most_in_memory: 0, ..Form::default() };
    let spec = DataSpec::new(Source::npz(&path));
    let found = Dataset::open_as(&spec, &wants(CLASSES), form, &mut step).map_err(|error| error.code());
    assert_eq!(found.err(), Some("E619"));
}

#[test]
fn a_disk_that_does_not_give_a_file_is_no_fault_of_its_format() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| write(&folder, name, &[0; 64]);
    let archive = path("a.npz");
    std::fs::write(&archive, b"PK\x03\x04").unwrap();
    for source in [
        Source::npz(&archive),
        Source::safetensors(path("a.st")),
        Source::npy(path("x.npy"), path("y.npy")),
        idx_source(&path("x.idx"), &path("y.idx")),
    ] {
        let (inputs, digests) = (Default::default(), vec![ContentDigest::LOWEST; source.paths().len()]);
        let unreadable = |path: &str| Contents::OnDisk(DiskFile::unreadable(path.as_ref()).into());
        let contents = source.paths().into_iter().map(unreadable).collect();
        let files = SourceFiles::new(&source, &inputs, contents, &mut &digests[..], false);
        let found = files.parse(Form::default(), &wants(CLASSES), None, &mut || Ok(()));
        assert_eq!(found.map_err(|error| error.code()).err(), Some("E330"), "{source:?}");
    }
}
