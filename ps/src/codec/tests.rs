//! Every codec against plain f32 arithmetic.

use half::{bf16, f16};
use syncline_scheduler::samples::splitmix64;

use super::*;

const ALL: [Codec; 6] = [
    Codec::Plain,
    Codec::Bf16,
    Codec::Fp16,
    Codec::Int8,
    Codec::TopK { of_full_chunk: 656 },
    Codec::TopK { of_full_chunk: CHUNK_ELEMENTS as u32 / 2 },
];
/// Of none, of one, around a block, and of a whole chunk.
const LENGTHS: [usize; 8] = [0, 1, 2, 255, 256, 257, 1000, CHUNK_ELEMENTS];
const SEED: u64 = 20_261_123;

fn encoded(codec: Codec, values: &mut [f32], trained: usize) -> Vec<u8> {
    let mut out = vec![0xAA; codec.chunk_bytes(trained, values.len() - trained)];
    codec.encode(values, trained, &mut out);
    out
}

fn decoded(codec: Codec, bytes: &[u8], trained: usize, elements: usize) -> Result<Vec<f32>, CodecFault> {
    let mut values = vec![f32::NAN; elements];
    codec.decode(bytes, trained, &mut values).map(|()| values)
}

/// What a gradient may hold: noise of every magnitude, zeros of both signs, the smallest and the largest.
fn values(kind: u64, length: usize, seed: &mut u64) -> Vec<f32> {
    let special = [0.0, -0.0, f32::MIN_POSITIVE, -1e-45, 1e-45, f32::MAX, f32::MIN, 65_504.0, 1e30, -6e-8];
    let mut draw = || {
        let bits = splitmix64(seed);
        let unit = (bits >> 40) as f32 / (1 << 24) as f32 - 0.5;
        match kind {
            0 => unit,
            1 => unit * 1e-6,
            2 => unit * f32::MIN_POSITIVE,
            3 => special[bits as usize % special.len()],
            4 => Some(f32::from_bits(bits as u32)).filter(|x| x.is_finite()).unwrap_or(1.0),
            _ => (bits % 5) as f32 - 2.0,
        }
    };
    (0..length).map(|_| draw()).collect()
}

/// Runs `check` on gradients of every kind and length, and on what each codec makes of them.
fn for_all(check: impl Fn(Codec, &[f32], &[f32], &[f32], &str)) {
    println!("seed {SEED}");
    for codec in ALL {
        for kind in 0..6 {
            for length in LENGTHS {
                let mut seed = SEED + kind;
                let before = values(kind, length, &mut seed);
                let mut lost = before.clone();
                let bytes = encoded(codec, &mut lost, length);
                let after = decoded(codec, &bytes, length, length).unwrap();
                check(codec, &before, &after, &lost, &format!("{codec:?}, {length} of kind {kind}"));
            }
        }
    }
}

#[test]
fn what_is_decoded_and_what_was_lost_are_together_what_was_encoded() {
    for_all(|codec, before, after, lost, case| {
        let largest = match codec {
            Codec::Bf16 => bf16::MAX.to_f32(),
            Codec::Fp16 => f16::MAX.to_f32(),
            // 127 steps of the largest scale.
            Codec::Int8 => f32::MAX / 128.0 * 127.0,
            _ => f32::MAX,
        };
        for ((x, y), lost) in before.iter().zip(after).zip(lost) {
            assert!(y.is_finite() && lost.is_finite(), "{case}: {x} became {y}");
            if x.abs() <= largest {
                assert_eq!(f64::from(*y) + f64::from(*lost), f64::from(*x), "{case}: {x} became {y}");
            } else {
                assert!(((y + lost) / x - 1.0).abs() < 1e-6, "{case}: {x} became {y}");
            }
        }
    });
}

/// Parameters may begin as such: whoever computes on them is to find out.
#[test]
fn a_nan_stays_one_in_16_bits_whichever_of_its_bits_are_set() {
    for bits in [0x7fff_ffff, 0xffff_ffff, 0x7fc0_0000, 0x7f80_0001, 0xff80_ffff] {
        let mut lost = vec![1.0, f32::from_bits(bits)];
        let bytes = encoded(Codec::Bf16, &mut lost, 2);
        let sent = bf16::from_le_bytes([bytes[2], bytes[3]]);
        assert!(sent.is_nan() && lost[1].is_nan(), "{bits:#x} became {sent}");
        let mut lost = vec![1.0, f32::from_bits(bits)];
        let bytes = encoded(Codec::Fp16, &mut lost, 2);
        let sent = f16::from_le_bytes([bytes[2], bytes[3]]);
        assert!(sent.is_nan() && lost[1].is_nan(), "{bits:#x} became {sent}");
    }
}

#[test]
fn halves_are_what_the_half_crate_makes_of_each_number() {
    for_all(|codec, before, after, _, case| {
        for (x, y) in before.iter().zip(after) {
            let want = match codec {
                Codec::Bf16 => bf16::from_f32(*x).to_f32().clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32()),
                Codec::Fp16 => f16::from_f32(*x).to_f32().clamp(f16::MIN.to_f32(), f16::MAX.to_f32()),
                _ => return,
            };
            assert_eq!(y.to_bits(), want.to_bits(), "{case}: {x}");
        }
    });
}

#[test]
fn an_eight_bit_number_is_off_by_half_a_step_of_its_block_at_most() {
    for_all(|codec, before, after, _, case| {
        if codec != Codec::Int8 {
            return;
        }
        for (before, after) in before.chunks(BLOCK).zip(after.chunks(BLOCK)) {
            let largest = before.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            // Below this a scale has no digits left, and beyond the largest scale numbers are cut.
            let step = (f64::from(largest) / 127.0).max(1e-43) * (1.0 + 1e-4);
            let cut = f64::from(largest) - 127.0 * f64::from(f32::MAX) / 128.0;
            for (x, y) in before.iter().zip(after) {
                let off = (f64::from(*x) - f64::from(*y)).abs();
                assert!(off <= (step / 2.0).max(cut) * (1.0 + 1e-6), "{case}: {x} became {y}, step {step}");
            }
        }
    });
}

#[test]
fn the_largest_are_kept_as_they_are_and_all_others_are_zero() {
    for_all(|codec, before, after, lost, case| {
        let Codec::TopK { of_full_chunk } = codec else { return };
        let kept = top_k::kept(of_full_chunk, before.len());
        assert!(kept > 0 || before.is_empty());
        let mut order: Vec<usize> = (0..before.len()).collect();
        // Stable: of equal ones the first.
        order.sort_by(|&a, &b| before[b].abs().total_cmp(&before[a].abs()));
        for (rank, at) in order.into_iter().enumerate() {
            let (sent, left) = if rank < kept { (before[at], 0.0) } else { (0.0, before[at]) };
            assert_eq!((after[at], lost[at]), (sent, left), "{case}: place {at}, rank {rank}");
        }
    });
}

#[test]
fn buffers_are_sent_as_they_are_whatever_the_codec() {
    println!("seed {SEED}");
    for codec in ALL {
        for trained in [0, 1, 300, 1000] {
            let mut before = values(4, 1000, &mut SEED.clone());
            // Not even what is no number is changed.
            before[999] = if trained < 1000 { f32::NAN } else { 1.0 };
            let mut lost = before.clone();
            let bytes = encoded(codec, &mut lost, trained);
            let after = decoded(codec, &bytes, trained, 1000).unwrap();
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&after[trained..]), bits(&before[trained..]), "{codec:?}");
            assert!(lost[trained..].iter().all(|x| *x == 0.0), "{codec:?}");
        }
    }
}

#[test]
fn what_is_fed_back_makes_the_sum_of_many_pushes_exact() {
    println!("seed {SEED}");
    // Whole numbers: no sum of f32 is rounded, so that what comes out at the end is exact.
    let mut seed = SEED;
    for codec in ALL {
        let (mut kept_back, mut sent, mut pushed) = ([0.0f32; 700], [0.0f64; 700], [0.0f64; 700]);
        for _ in 0..50 {
            for ((kept_back, pushed), value) in
                kept_back.iter_mut().zip(&mut pushed).zip((0..700).map(|_| splitmix64(&mut seed) % 2001))
            {
                let gradient = value as f32 - 1000.0;
                *pushed += f64::from(gradient);
                *kept_back += gradient;
            }
            let bytes = encoded(codec, &mut kept_back, 700);
            let after = decoded(codec, &bytes, 700, 700).unwrap();
            sent.iter_mut().zip(&after).for_each(|(sent, value)| *sent += f64::from(*value));
        }
        for ((sent, kept_back), pushed) in sent.iter().zip(&kept_back).zip(&pushed) {
            let off = (sent + f64::from(*kept_back) - pushed).abs();
            // Scales of 8 bits are no whole numbers: their sums are rounded.
            let most = if codec == Codec::Int8 { 1e-2 } else { 0.0 };
            assert!(off <= most, "{codec:?}: {off}");
        }
    }
}

#[test]
fn bytes_of_another_length_are_refused() {
    for codec in ALL {
        let bytes = encoded(codec, &mut [1.0; 300], 200);
        for wrong in [&bytes[..0], &bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat()] {
            let fault = CodecFault::Length { got: wrong.len(), expected: bytes.len() };
            assert_eq!(decoded(codec, wrong, 200, 300), Err(fault), "{codec:?}");
        }
    }
}

#[test]
fn numbers_scales_and_places_that_cannot_be_meant_are_refused() {
    for (codec, bad) in [
        (Codec::Bf16, bf16::NAN.to_le_bytes()),
        (Codec::Bf16, bf16::NEG_INFINITY.to_le_bytes()),
        (Codec::Fp16, f16::INFINITY.to_le_bytes()),
        (Codec::Fp16, f16::NAN.to_le_bytes()),
    ] {
        let mut bytes = encoded(codec, &mut [1.0; 300], 300);
        bytes[2 * 299..].copy_from_slice(&bad);
        assert_eq!(decoded(codec, &bytes, 300, 300), Err(CodecFault::NotFinite));
    }
    for scale in [f32::NAN, f32::INFINITY, -1.0, f32::MAX / 127.0] {
        let mut bytes = encoded(Codec::Int8, &mut [1.0; 300], 300);
        bytes[260..264].copy_from_slice(&scale.to_le_bytes());
        assert!(matches!(decoded(Codec::Int8, &bytes, 300, 300), Err(CodecFault::Scale(_))), "{scale}");
    }
    let codec = Codec::TopK { of_full_chunk: CHUNK_ELEMENTS as u32 / 100 };
    let good = encoded(codec, &mut [1.0; 300], 300);
    let with = |place: usize, bytes: [u8; 2]| {
        let mut bad = good.clone();
        bad[12 + 2 * place..][..2].copy_from_slice(&bytes);
        decoded(codec, &bad, 300, 300)
    };
    assert_eq!(good.len(), 18, "three of 300");
    assert_eq!(with(2, 299u16.to_le_bytes()).unwrap()[299], 1.0);
    let refused = |place, before| Err(CodecFault::Place { place, before, trained: 300 });
    assert_eq!(with(2, 300u16.to_le_bytes()), refused(300, 1), "outside");
    assert_eq!(with(1, u16::MAX.to_le_bytes()), refused(65_535, 0), "far outside");
    assert_eq!(with(2, 1u16.to_le_bytes()), refused(1, 1), "twice");
    assert_eq!(with(0, 2u16.to_le_bytes()), refused(1, 2), "not ascending");
    let mut bad = good.clone();
    bad[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert_eq!(decoded(codec, &bad, 300, 300), Err(CodecFault::NotFinite));
}

#[test]
fn noise_decodes_to_finite_numbers_or_is_refused() {
    println!("seed {SEED}");
    let mut seed = SEED;
    for codec in ALL.into_iter().filter(|codec| *codec != Codec::Plain) {
        for _ in 0..200 {
            let noise: Vec<u8> =
                (0..codec.chunk_bytes(600, 0)).map(|_| splitmix64(&mut seed) as u8).collect();
            if let Ok(values) = decoded(codec, &noise, 600, 600) {
                assert!(values.iter().all(|x| x.is_finite()), "{codec:?}");
            }
        }
    }
}

#[test]
fn a_share_of_the_setting_is_a_count_of_a_full_chunk() {
    let kept = |share| match Codec::of(Compression::TopK(share)) {
        Some(Codec::TopK { of_full_chunk }) => of_full_chunk,
        other => unreachable!("{other:?}"),
    };
    assert_eq!([1e-9, 0.5, 0.25].map(kept), [1, 32_768, 16_384]);
    assert_eq!([kept(f32::NAN), kept(-1.0), kept(7.0)], [1, 1, 65_536], "others are refused before");
}
