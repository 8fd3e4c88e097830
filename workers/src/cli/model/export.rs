//! `syncline model export`: trained parameters back in the user's own forward model.

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use syncline_engine::cli::{Connection, Exit, Failure, block_on, print};
use syncline_scheduler::ids::JobId;

use super::{read, write};
use crate::{
    cli::model_failure,
    onnx::{self, ElementType, ModelProto, proto::TensorProto},
};

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// A job whose snapshot lies on this machine
    #[arg(value_name = "JOB", required_unless_present = "snapshot", conflicts_with = "snapshot")]
    job: Option<JobId>,
    /// The forward model that was trained
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// A snapshot, instead of a job's
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Where to write the trained model
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    connection: Connection,
}

pub(super) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let snapshot = match (&args.snapshot, &args.job) {
        (Some(path), _) => path.clone(),
        (None, Some(job)) => snapshot_of(job, &args.connection)?,
        (None, None) => PathBuf::new(),
    };
    let model = onnx::parse(&read(&args.model)?).map_err(model_failure)?;
    let (model, count) = fill(model, &snapshot, &read(&snapshot)?)?;
    write(&args.out, &model.to_bytes())?;
    print(&format!("{count} parameters of {} in {}", snapshot.display(), args.out.display()))
}

/// Where the snapshot of a job lies.
fn snapshot_of(job: &JobId, connection: &Connection) -> Result<PathBuf, Failure> {
    let cluster = connection.find()?;
    block_on(async {
        let (client, _) = cluster.meet().await?;
        let view = client.job(job).await?;
        match view.job.get("snapshot").filter(|path| !path.is_empty()) {
            Some(path) => Ok(PathBuf::from(path)),
            None => {
                let text = format!("[E246] job {job} has no snapshot");
                Err(Failure::new(
                    Exit::Usage,
                    text,
                    "a job writes one where its graph has a node `do = \"snapshot\"`",
                ))
            }
        }
    })
}

/// Puts every tensor of the snapshot into the constant of the same name; returns how many.
fn fill(mut model: ModelProto, path: &Path, snapshot: &[u8]) -> Result<(ModelProto, usize), Failure> {
    let misfit = |reason: String| {
        let text = format!("[E247] {} does not fit the model: {reason}", path.display());
        Failure::new(Exit::Usage, text, "`syncline model show` shows the names and shapes of both")
    };
    let damaged = |error| {
        let text = format!("[E380] {} is not a safetensors file: {error}", path.display());
        Failure::new(Exit::Usage, text, "write the snapshot again; `syncline status JOB` shows where it lies")
    };
    let file = SafeTensors::deserialize(snapshot).map_err(damaged)?;
    let mut constants = model.graph.iter_mut().flat_map(|graph| &mut graph.initializer).collect::<Vec<_>>();
    let mut count = 0;
    for (name, view) in file.iter() {
        let tensor = constants.iter_mut().find(|tensor| tensor.name == name);
        let tensor = tensor.ok_or_else(|| misfit(format!("the model has no parameter `{name}`")))?;
        if view.dtype() != Dtype::F32
            || tensor.element() != ElementType::F32
            || view.shape() != tensor.shape()
        {
            let (found, wanted) = (view.shape(), tensor.shape());
            return Err(misfit(format!(
                "`{name}` is {:?} {found:?}, the model has {wanted:?}",
                view.dtype()
            )));
        }
        let numbers: Vec<f32> =
            view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        **tensor = TensorProto::from_f32(name, view.shape(), &numbers);
        count += 1;
    }
    Ok((model, count))
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::onnx::mlp;

    fn snapshot(name: &str, shape: Vec<usize>) -> Vec<u8> {
        let bytes: Vec<u8> =
            (0..shape.iter().product()).flat_map(|number| (number as f32).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, shape, &bytes).unwrap();
        safetensors::serialize([(name, view)], None).unwrap()
    }

    #[test]
    fn trained_numbers_replace_those_of_the_model_and_nothing_else_changes() {
        let model = mlp(&[2, 3], 1);
        let (filled, count) =
            fill(model.clone(), Path::new("s"), &snapshot("fc1.weight", vec![2, 3])).unwrap();
        assert_eq!(count, 1);
        let (mut filled, model) = (filled.graph.unwrap(), model.graph.unwrap());
        assert_eq!(filled.initializer[0].to_f32().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        filled.initializer[0] = model.initializer[0].clone();
        assert_eq!(filled, model);
    }

    #[test]
    fn a_snapshot_of_another_model_is_refused() {
        for snapshot in [snapshot("fc1.weight", vec![3, 2]), snapshot("fc9.weight", vec![2, 3])] {
            let refused = fill(mlp(&[2, 3], 1), Path::new("s"), &snapshot).unwrap_err();
            assert_eq!(refused.exit(), Exit::Usage);
        }
        assert!(fill(mlp(&[2, 3], 1), Path::new("s"), b"nothing").is_err());
    }
}
