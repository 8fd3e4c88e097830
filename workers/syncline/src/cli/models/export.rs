//! `syncline model export`: trained parameters back in the user's own forward model, in the form that predicts.

use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};
use syncline_autodiff::{inference_form, parse_forward, with_columns};
use syncline_onnx::{ElementType, ModelProto, proto::TensorProto};
use syncline_ps::client::BlobClient;
use syncline_scheduler::ids::JobId;

use super::{read, write};
use crate::cli::{Connection, Exit, Failure, block_on, print};

#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct ExportArgs {
    /// A job that wrote a snapshot; its model and its snapshot come from the parameter server
    #[arg(value_name = "JOB", required_unless_present = "snapshot", conflicts_with = "snapshot")]
    job: Option<JobId>,
    /// Where to write the trained model
    #[arg(value_name = "OUT.onnx")]
    out: PathBuf,
    /// A snapshot file instead of a job's
    #[arg(long, value_name = "FILE", requires = "model")]
    snapshot: Option<PathBuf>,
    /// The forward model that was trained, with --snapshot
    #[arg(long, value_name = "FILE", requires = "snapshot")]
    model: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// A forward model, a snapshot, and what the latter is called.
struct Parts {
    model: Vec<u8>,
    snapshot: Vec<u8>,
    source: String,
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let parts = match (&args.job, &args.snapshot, &args.model) {
        (Some(job), ..) => of_job(job, &args.connection)?,
        (None, Some(snapshot), Some(model)) => {
            let source = snapshot.display().to_string();
            Parts { model: read(model)?, snapshot: read(snapshot)?, source }
        }
        _ => return Err(Failure::new(Exit::Usage, "[E500] neither a job nor a snapshot is named", HINT)),
    };
    let model = parse_forward(&parts.model)?;
    let (model, count) = fill(model, &parts.source, &parts.snapshot)?;
    write(&args.out, &model.to_bytes())?;
    print(&format!("{count} parameters of {} in {}", parts.source, args.out.display()))
}

const HINT: &str = "`syncline jobs` lists the jobs";

/// Fetches a job's forward model and snapshot from the parameter server.
fn of_job(job: &JobId, connection: &Connection) -> Result<Parts, Failure> {
    let cluster = connection.find()?;
    let (view, shards) = block_on(async {
        let (client, _) = cluster.connect().await?;
        Ok((client.job(job).await?, client.shards().await?))
    })?;
    let digest = |name: &str| view.job.get(name).filter(|digest| !digest.is_empty());
    let (Some(model), Some(snapshot)) = (digest("model_digest"), digest("snapshot_digest")) else {
        let text = format!("[E246] job {job} has no snapshot");
        let hint = "a job writes one where its graph has a node `do = \"snapshot\"`";
        return Err(Failure::new(Exit::Usage, text, hint));
    };
    let blobs = BlobClient::new(cluster.token);
    let fetch = |digest: &str| blobs.get(&shards, digest).map_err(Failure::from);
    Ok(Parts { model: fetch(model)?, snapshot: fetch(snapshot)?, source: format!("job {job}") })
}

/// Puts every tensor of the snapshot into the constant of the same name; returns how many.
fn fill(mut model: ModelProto, source: &str, snapshot: &[u8]) -> Result<(ModelProto, usize), Failure> {
    let misfit = |reason: String| {
        let text = format!("[E247] {source} does not fit the model: {reason}");
        Failure::new(Exit::Usage, text, "`syncline model show` shows the names and shapes of both")
    };
    let damaged = |error| {
        let text = format!("[E380] {source} is not a safetensors file: {error}");
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
    // Whatever form it came in, and so that ONNX Runtime computes with it what was evaluated.
    Ok((with_columns(inference_form(model)), count))
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;
    use syncline_onnx::mlp;

    fn snapshot(name: &str, shape: Vec<usize>) -> Vec<u8> {
        let bytes: Vec<u8> =
            (0..shape.iter().product()).flat_map(|number| (number as f32).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, shape, &bytes).unwrap();
        safetensors::serialize([(name, view)], None).unwrap()
    }

    #[test]
    fn trained_numbers_replace_those_of_the_model_and_nothing_else_changes() {
        let model = mlp(&[2, 3], 1);
        let (filled, count) = fill(model.clone(), "s", &snapshot("fc1.weight", vec![2, 3])).unwrap();
        assert_eq!(count, 1);
        let (mut filled, model) = (filled.graph.unwrap(), model.graph.unwrap());
        assert_eq!(filled.initializer[0].to_f32().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        filled.initializer[0] = model.initializer[0].clone();
        assert_eq!(filled, model);
    }

    #[test]
    fn a_snapshot_of_another_model_is_refused() {
        for snapshot in [snapshot("fc1.weight", vec![3, 2]), snapshot("fc9.weight", vec![2, 3])] {
            let refused = fill(mlp(&[2, 3], 1), "s", &snapshot).unwrap_err();
            assert_eq!(refused.exit(), Exit::Usage);
        }
        assert!(fill(mlp(&[2, 3], 1), "s", b"nothing").is_err());
    }
}
