//! Compiles a loop twice: for every x86-64, and for those with AVX2, chosen at run time.
//!
//! AVX2 only, without FMA: a fused multiply-add rounds once instead of twice, and then shards on different
//! machines would disagree about the same numbers.

/// Wraps a function with a loop the compiler vectorises.
macro_rules! vectorize {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "AVX2 was found on this machine on the line above")]
                    return unsafe { avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}

pub(crate) use vectorize;
