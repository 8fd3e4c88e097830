//! Arrays of numpy. The files in `numpy` are written by numpy 2.4, see `make.py` there.

use std::io::Cursor;

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::*;

const PLAIN: &[u8] = include_bytes!("numpy/plain.npz");
const PACKED: &[u8] = include_bytes!("numpy/packed.npz");
const REFUSED: &[u8] = include_bytes!("numpy/refused.npz");
const X: &[u8] = include_bytes!("numpy/x.npy");
const LABEL: &[u8] = include_bytes!("numpy/label.npy");

/// An array as numpy saves it.
pub(super) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = [NPY_MARK, &[1, 0]].concat();
    bytes.extend((text.len() as u16).to_le_bytes());
    [bytes, text.into_bytes(), data.to_vec()].concat()
}

/// The same in Fortran order, of float32.
pub(super) fn fortran(shape: &str, numbers: &[f32]) -> Vec<u8> {
    let text = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}\n");
    let start = [NPY_MARK, &[1, 0], &(text.len() as u16).to_le_bytes()].concat();
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    [start, text.into_bytes(), data].concat()
}

/// An archive of these files.
pub(super) fn archive(files: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn npz_spec(folder: &TempDir, bytes: &[u8]) -> DataSpec {
    DataSpec::new(Source::npz(write(folder, "data.npz", bytes)))
}

fn open_npz(bytes: &[u8], wanted: &ModelSignature) -> Result<Dataset, DataError> {
    let folder = TempDir::new().unwrap();
    Dataset::open(&npz_spec(&folder, bytes), wanted)
}

/// One input of any shape, and no label.
fn wants_only(name: &str, element: DataElement, shape: &[Option<usize>]) -> ModelSignature {
    ModelSignature { inputs: vec![input(name, element, shape)], label: None }
}

#[test]
fn what_numpy_has_saved_packed_or_not_is_found_by_its_names() {
    for bytes in [PLAIN, PACKED] {
        let data = open_npz(bytes, &wants(CLASSES)).unwrap();
        assert_eq!(samples(&data), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
        assert_eq!(labels(&data), [2.0, 0.0, 1.0, 2.0]);
        let mask = wants_only("mask", DataElement::I64, &[Some(2)]);
        assert_eq!(samples(&open_npz(bytes, &mask).unwrap()), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    }
    let folder = TempDir::new().unwrap();
    // The numbers of a mask are truth values where the model takes them, and others are not.
    let truths = wants_only("mask", DataElement::Bool, &[Some(2)]);
    assert_eq!(samples(&open_npz(PLAIN, &truths).unwrap()), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let numbers = wants_only("x", DataElement::Bool, &[Some(2)]);
    refused(&npz_spec(&folder, PLAIN), &numbers, "E484", "row 1, column 2 of `x`: 0.5 is neither 0 nor 1");
    let classes = wants_only("label", DataElement::Bool, &[]);
    refused(&npz_spec(&folder, PLAIN), &classes, "E484", "row 1, column 1 of `label`: 2 is neither 0 nor 1");
    let absent = wants_only("images", DataElement::F32, &[None]);
    refused(&npz_spec(&folder, PACKED), &absent, "E482", "no array `images`, it has label, mask, x");
}

#[test]
fn two_files_of_numpy_are_samples_and_labels() {
    let folder = TempDir::new().unwrap();
    let [x, y] = [("x.npy", X), ("y.npy", LABEL)].map(|(name, bytes)| write(&folder, name, bytes));
    let spec = DataSpec::new(Source::npy(&x, &y));
    let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
    assert_eq!((samples(&data)[7], labels(&data)), (3.5, vec![2.0, 0.0, 1.0, 2.0]));
    let packed = write(&folder, "x.npy.gz", &gzip(X));
    let spec = DataSpec::new(Source::npy(&packed, &y)).with(|d| d.test = Some(Source::npy(&x, &y)));
    assert_eq!(Dataset::open(&spec, &wants(CLASSES)).unwrap().len(), 8);
    let short = write(&folder, "short.npy", &npy("'<i8'", "(1,)", &[0; 8]));
    refused(&DataSpec::new(Source::npy(&x, &short)), &wants(CLASSES), "E333", "1 labels for 4 samples");
}

#[test]
fn every_type_of_number_is_read_exactly_from_either_format() {
    fn le<const N: usize>(all: [[u8; N]; 2]) -> Vec<u8> {
        all.concat()
    }
    let big = (1_u64 << 53) - 1;
    #[rustfmt::skip]
    let cases: [(&str, Dtype, Vec<u8>, [f64; 2]); 13] = [
        ("|b1", Dtype::BOOL, vec![0, 1],                                             [0.0, 1.0]),
        ("|u1", Dtype::U8,   vec![0, 255],                                           [0.0, 255.0]),
        ("|i1", Dtype::I8,   vec![0x80, 0x7f],                                       [-128.0, 127.0]),
        ("<u2", Dtype::U16,  le([1_u16.to_le_bytes(), u16::MAX.to_le_bytes()]),      [1.0, 65_535.0]),
        ("<i2", Dtype::I16,  le([i16::MIN.to_le_bytes(), 7_i16.to_le_bytes()]),      [-32_768.0, 7.0]),
        ("<u4", Dtype::U32,  le([1_u32.to_le_bytes(), u32::MAX.to_le_bytes()]),      [1.0, 4_294_967_295.0]),
        ("<i4", Dtype::I32,  le([i32::MIN.to_le_bytes(), 7_i32.to_le_bytes()]),      [-2_147_483_648.0, 7.0]),
        ("<u8", Dtype::U64,  le([1_u64.to_le_bytes(), big.to_le_bytes()]),           [1.0, big as f64]),
        ("<i8", Dtype::I64,  le([(-1_i64).to_le_bytes(), 7_i64.to_le_bytes()]),      [-1.0, 7.0]),
        ("<f2", Dtype::F16,  le([[0x00, 0x3c], [0x01, 0x00]]),                       [1.0, 2f64.powi(-24)]),
        ("",    Dtype::BF16, le([[0x80, 0x3f], [0x49, 0x40]]),                       [1.0, 3.140_625]),
        ("<f4", Dtype::F32,  le([0.1_f32.to_le_bytes(), (-2_f32).to_le_bytes()]),    [0.1_f32.into(), -2.0]),
        ("<f8", Dtype::F64,  le([0.5_f64.to_le_bytes(), (-2_f64).to_le_bytes()]),    [0.5, -2.0]),
    ];
    for (descr, dtype, bytes, want) in cases {
        let is_float = matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
        let element = if is_float { DataElement::F32 } else { DataElement::I64 };
        let wanted = wants_only("x", element, &[]);
        let folder = TempDir::new().unwrap();
        let path = write(&folder, "data.safetensors", &tensors(&[("x", dtype, &[2], &bytes)]));
        let data = Dataset::open(&DataSpec::new(Source::safetensors(path)), &wanted).unwrap();
        assert_eq!(samples(&data), want, "{dtype:?}");
        if !descr.is_empty() {
            let file =
                archive(&[("x.npy", &npy(&format!("'{descr}'"), "(2,)", &bytes))], CompressionMethod::Stored);
            assert_eq!(samples(&open_npz(&file, &wanted).unwrap()), want, "{descr}");
        }
    }
    let above = npy("'<u8'", "(2, 2)", &[[0; 8], [0; 8], [0; 8], [255; 8]].concat());
    let folder = TempDir::new().unwrap();
    let spec = npz_spec(&folder, &archive(&[("x.npy", &above)], CompressionMethod::Stored));
    refused(
        &spec,
        &wants_only("x", DataElement::F32, &[None]),
        "E484",
        "row 2, column 2 of `x`: 18446744073709551615",
    );
}

#[test]
fn arrays_in_fortran_order_hold_what_the_same_ones_in_c_order_hold() {
    let folder = TempDir::new().unwrap();
    // numpy.asfortranarray of the array whose numbers are those of its place: 0, 1, 2 and so on in C order.
    #[rustfmt::skip]
    let cases: [(&str, &[Option<usize>], &[f32]); 4] = [
        ("(3,)",      &[],                 &[0.0, 1.0, 2.0]),
        ("(2, 3)",    &[Some(3)],          &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]),
        ("(2, 2, 3)", &[Some(2), Some(3)], &[0.0, 6.0, 3.0, 9.0, 1.0, 7.0, 4.0, 10.0, 2.0, 8.0, 5.0, 11.0]),
        ("(1, 2, 2)", &[Some(2), Some(2)], &[0.0, 2.0, 1.0, 3.0]),
    ];
    for (shape, sample, numbers) in cases {
        let file = archive(&[("x.npy", &fortran(shape, numbers))], CompressionMethod::Stored);
        let data = open_npz(&file, &wants_only("x", DataElement::F32, sample)).unwrap();
        let want: Vec<f64> = (0..numbers.len()).map(|number| number as f64).collect();
        assert_eq!(samples(&data), want, "{shape}");
    }
    let of_numpy = wants_only("fortran", DataElement::F32, &[Some(2)]);
    let data = Dataset::open(&npz_spec(&folder, REFUSED), &of_numpy).unwrap();
    assert_eq!(samples(&data), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
}

#[test]
fn what_is_not_read_is_refused_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    let spec = npz_spec(&folder, REFUSED);
    #[rustfmt::skip]
    let cases = [
        ("objects", "E481", "`objects` holds |O",        "pickled, and never read"),
        ("big",     "E481", "`big` holds >f4",           "a.dtype.newbyteorder(\"<\")"),
        ("fields",  "E481", "holds a structured type",   "save each field as an array of its own"),
        ("texts",   "E481", "holds <U9",                 "numpy.unique"),
        ("complex", "E481", "holds <c8",                 "a.real"),
        ("times",   "E481", "holds <M8[D]",              "numpy.timedelta64"),
        ("long",    "E481", "holds <f16",                "a.astype(\"float32\")"),
        ("nothing", "E333", "of shape [0, 3] has no samples", ""),
        ("number",  "E333", "of shape [] has no samples", ""),
    ];
    for (name, code, words, hint) in cases {
        let error = Dataset::open(&spec, &wants_only(name, DataElement::F32, &[None])).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(words), "{name}: {error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{name}: {:?}", error.hint());
    }
}

#[test]
fn files_that_lie_are_refused_before_they_take_memory() {
    let stored = |file: &[u8]| archive(&[("x.npy", file)], CompressionMethod::Stored);
    let good = npy("'<f4'", "(2,)", &[0; 8]);
    let mut flipped = stored(&good);
    let data = flipped.windows(8).position(|eight| eight == [0; 8]).unwrap();
    flipped[data] ^= 1;
    let packed =
        archive(&[("x.npy", &npy("'|u1'", "(3,)", &vec![0; 64 << 20]))], CompressionMethod::Deflated);
    let whole = stored(&good);
    #[rustfmt::skip]
    let cases: [(&str, Vec<u8>, &str, &str); 13] = [
        ("too few numbers",      stored(&npy("'<f4'", "(3,)", &[0; 8])),              "E333", "ends before it has the numbers of its shape [3]"),
        ("too many numbers",     stored(&npy("'<f4'", "(1,)", &[0; 8])),              "E333", "has more numbers than those of its shape [1]"),
        ("a bomb",               packed,                                             "E333", "has more numbers than those of its shape [3]"),
        ("a size that is not there", stored(&npy("'|u1'", "(2147483648,)", &[0; 8])), "E333", "ends before it has the numbers"),
        ("more than a file may", stored(&npy("'<f8'", "(2147483648,)", &[0; 8])),     "E332", "holds more than 4294967296 bytes"),
        ("overflow",             stored(&npy("'<f4'", "(4294967296, 4294967296)", &[])), "E332", "numbers in one array"),
        ("a long header",        stored(&[NPY_MARK, &[2, 0, 0, 0, 0, 255]].concat()), "E333", "its header is longer"),
        ("an unknown version",   stored(&[NPY_MARK, &[9, 0, 0, 0]].concat()),         "E333", "its version"),
        ("an end in the header", stored(&good[..30]),                                 "E333", "ends inside its header"),
        ("a pickle",             stored(b"\x80\x04\x95\x0b\x00\x00\x00\x00"),         "E333", "pickles are not read"),
        ("flipped bits",         flipped,                                            "E333", "hecksum"),
        ("a file that is cut",   whole[..whole.len() - 30].to_vec(),                  "E333", "zip:"),
        ("another archive",      archive(&[("data.pkl", b"x")], CompressionMethod::Stored), "E333", "it has no array of numpy"),
    ];
    for (name, bytes, code, words) in cases {
        let error = open_npz(&bytes, &wants_only("x", DataElement::F32, &[])).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(words), "{name}: {error}");
    }
    let folder = TempDir::new().unwrap();
    let wanted = wants_only("x", DataElement::F32, &[]);
    refused(&npz_spec(&folder, b"\x80\x04\x95pickled"), &wanted, "E333", "pickles are not read");
    refused(&npz_spec(&folder, X), &wanted, "E333", "it is an array of numpy");
    let table = csv_spec(&write(&folder, "data.csv", PLAIN), 1, 0);
    refused(&table, &wants(CLASSES), "E333", "`source = { npz = { path = ... } }` reads it");
}

#[test]
fn an_archive_of_too_many_files_is_not_listed() {
    let mut bytes = archive(&[("x.npy", &npy("'|u1'", "(1,)", &[0]))], CompressionMethod::Stored);
    let names: Vec<String> = (0..65_537).map(|number| format!("{number}.npy")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let wanted = wants_only("x", DataElement::F32, &[]);
    assert!(open_npz(&bytes, &wanted).is_ok());
    bytes = archive(&files, CompressionMethod::Stored);
    let error = open_npz(&bytes, &wanted).unwrap_err();
    assert!(error.to_string().contains("it has 65537 arrays, 65536 are read"), "{error}");
}
