use std::{
    cell::RefCell,
    ffi::{c_char, c_int, c_uint, c_void},
    mem::take,
};

use super::*;

thread_local! {
    /// What this thread asked of CUDA.
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn ask(what: String) -> c_int {
    ASKED.with_borrow_mut(|asked| asked.push(what));
    0
}

fn asked() -> Vec<String> {
    ASKED.with_borrow_mut(take)
}

extern "C" fn set_device(gpu: c_int) -> c_int {
    ask(format!("device {gpu}"))
}

/// Knows no memory that is only read.
extern "C" fn register(_: *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    ask(format!("register {bytes} as {flags}"));
    if flags == 1 { 0 } else { 801 }
}

extern "C" fn unregister(_: *mut c_void) -> c_int {
    ask("unregister".to_owned())
}

extern "C" fn take_last_error() -> c_int {
    ask("take the error".to_owned())
}

extern "C" fn error_text(_: c_int) -> *const c_char {
    c"operation not supported".as_ptr()
}

/// As with a GPU, number 3, in ordinary memory.
pub(crate) fn locks() -> PageLocks {
    PageLocks::new(CudaCalls { set_device, register, unregister, take_last_error, error_text }, 3)
}

/// Floats that stay where they are.
#[derive(Debug)]
pub(crate) struct Floats {
    pub(crate) floats: &'static [f32],
    pub(crate) is_writable: bool,
}

// SAFETY: the slice is static.
#[expect(unsafe_code, reason = "memory to lock")]
unsafe impl HostMemory for Floats {
    fn base(&self) -> NonNull<u8> {
        NonNull::from(self.floats).cast()
    }

    fn bytes(&self) -> usize {
        size_of_val(self.floats)
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }
}

pub(crate) fn floats(floats: Vec<f32>, is_writable: bool) -> Arc<Floats> {
    Arc::new(Floats { floats: floats.leak(), is_writable })
}

fn runtime() -> Runtime {
    crate::onnxruntime::runtime().tried_on(Device::Cuda(3), Some(locks()))
}

#[test]
fn memory_is_locked_for_the_gpu_that_computes_and_let_go_when_nobody_needs_it() {
    let runtime = runtime();
    let locks = runtime.page_locks().unwrap();
    let memory = floats(vec![0.0; 8], true);
    assert!(!locks.hold(memory.floats));
    let lock = runtime.lock_pages(memory.clone()).unwrap();
    assert!(locks.hold(memory.floats) && locks.hold(&memory.floats[3..5]));
    assert!(!locks.hold(&[0.0; 2]), "other memory");
    assert_eq!(asked(), ["device 3", "register 32 as 1"]);
    drop(lock);
    assert!(!locks.hold(memory.floats));
    assert_eq!(asked(), ["device 3", "unregister"]);
}

#[test]
fn memory_that_cuda_does_not_lock_stays_what_it_is_and_leaves_no_error_behind() {
    let runtime = runtime();
    let memory = floats(vec![0.0; 8], false);
    let error = runtime.lock_pages(memory.clone()).unwrap_err();
    assert_eq!(error.code(), "E497");
    assert!(error.to_string().ends_with("operation not supported (CUDA error 801)"), "{error}");
    assert_eq!(asked(), ["device 3", "register 32 as 9", "take the error"]);
    assert!(!runtime.page_locks().unwrap().hold(memory.floats));
}

#[test]
fn without_a_gpu_nothing_is_locked() {
    let runtime = crate::onnxruntime::runtime();
    assert_eq!(runtime.lock_pages(floats(vec![0.0], true)).unwrap_err().code(), "E497");
    assert!(asked().is_empty());
}
