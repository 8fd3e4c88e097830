//! Which samples are held out to test or to validate: any of them, and of each class its share.

use syncline_scheduler::samples::{draw_below, permutation};

/// Draws `held` of `count` places, not in order. `classes`: of each place; of a class with c places it draws
/// c · held / count, rounded up or down: of every class so that its share is what can be expected (systematic
/// sampling, Madow and Madow 1944).
pub(super) fn draw(count: u32, held: u32, seed: u64, classes: Option<&[i64]>) -> Vec<u32> {
    let mut order = permutation(seed, 0, count);
    if let Some(classes) = classes {
        order.sort_by_key(|&place| classes[place as usize]);
    }
    // Of another sequence than the permutation.
    let start = draw_below(&mut !seed, count.into());
    let nth = |n: u32| (u64::from(n) * u64::from(count) + start) / u64::from(held);
    (0..held).map(|n| order[nth(n) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_class_is_drawn_by_its_share_table() {
        #[rustfmt::skip]
        let cases: [(&str, &[(i64, u32)], u32, &[(i64, u32, u32)]); 4] = [
            ("by tens",          &[(0, 80), (1, 20)],          10, &[(0, 8, 8), (1, 2, 2)]),
            ("one for each two", &[(0, 3), (1, 3), (-100, 4)], 5,  &[(0, 1, 2), (1, 1, 2), (-100, 2, 2)]),
            ("a rare one",       &[(0, 99), (7, 1)],           10, &[(0, 9, 10), (7, 0, 1)]),
            ("one class",        &[(3, 7)],                    1,  &[(3, 1, 1)]),
        ];
        for (name, labels, held, want) in cases {
            let classes: Vec<i64> =
                labels.iter().flat_map(|&(class, count)| (0..count).map(move |_| class)).collect();
            for seed in 0..20 {
                let drawn = draw(classes.len() as u32, held, seed, Some(&classes));
                assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), held as usize, "{name}, seed {seed}");
                for &(class, least, most) in want {
                    let found = drawn.iter().filter(|&&place| classes[place as usize] == class).count();
                    assert!(
                        (least..=most).contains(&(found as u32)),
                        "{name}, seed {seed}: {found} of {class}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_rare_class_is_held_out_now_and_then_wherever_it_stands() {
        // Two of a hundred, of which ten are held out: a fifth of one.
        for rare in [0, 1, 2] {
            let others = [[1, 2], [0, 2], [0, 1]][rare as usize];
            let class = |place: usize| if place < 2 { rare } else { others[place % 2] };
            let classes: Vec<i64> = (0..100).map(class).collect();
            let drawn = |seed| draw(100, 10, seed, Some(&classes)).iter().filter(|place| **place < 2).count();
            let all: usize = (0..500).map(drawn).sum();
            assert!((60..=140).contains(&all), "class {rare}: {all} in 500 draws");
        }
    }

    #[test]
    fn the_seed_chooses_and_the_order_of_the_file_does_not() {
        let drawn = |seed| draw(1000, 100, seed, None);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let first_half = drawn(1).iter().filter(|&&place| place < 500).count();
        assert!((30..=70).contains(&first_half), "{first_half}");
        assert!(draw(0, 0, 1, None).is_empty());
    }
}
