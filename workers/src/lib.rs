pub mod autodiff;
pub mod backend;
pub mod data;
pub mod onnx;
