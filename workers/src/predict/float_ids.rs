//! Which floats a model casts and looks up in a table: a job is stored with that of integers alone.

use syncline_autodiff::rows_of_tables;
use syncline_onnx::{Dim, parse};
use syncline_scheduler::spec::DataElement;

use crate::{
    client::TrainedJob,
    data::{InputSignature, ModelSignature},
};

/// Has float inputs say of how many rows the tables are that their numbers choose from, as where the job was
/// submitted: ONNX Runtime says less of a number that is none of them, and of a negative one nothing.
pub(super) fn note_float_ids(wanted: &mut ModelSignature, job: &TrainedJob) {
    // One that cannot be read is refused by ONNX Runtime.
    let Some(graph) = parse(&job.evaluation_graph).ok().and_then(|model| model.graph) else { return };
    let layout = &job.train.model.layout.0;
    let shapes: Vec<Vec<usize>> =
        layout.iter().map(|p| p.shape.iter().map(|&size| size as usize).collect()).collect();
    let parameters = || layout.iter().map(|p| p.name.as_str()).zip(shapes.iter().map(Vec::as_slice));
    for input in wanted.inputs.iter_mut().filter(|input| input.element == DataElement::F32) {
        input.rows = rows_of_tables(&graph, parameters(), &input.name, &dims(input));
    }
}

/// Of a batch of samples.
fn dims(input: &InputSignature) -> Vec<Dim> {
    let sizes = input.shape.iter().map(|size| size.map_or(Dim::Unknown, Dim::Fixed));
    [Dim::Unknown].into_iter().chain(sizes).collect()
}
