//! Pairs of shapes that broadcast, in every way that the rules tell apart.

#[rustfmt::skip]
pub const BROADCASTS: [(&[usize], &[usize]); 9] = [
    (&[2, 3],    &[2, 3]),
    (&[3],       &[2, 3]),
    (&[2, 3],    &[1]),
    (&[2, 3],    &[]),
    (&[1, 3],    &[2, 1]),
    (&[2, 1, 3], &[4, 1]),
    (&[2, 1, 3], &[1, 4, 1]),
    (&[1, 1],    &[2, 2, 2]),
    (&[1],       &[1, 1]),
];
