use syncline::{Client, DataSpec, JobGraph, Loss, Metric, Model, Source, Split, Training};

#[tokio::main]
async fn main() -> Result<(), syncline::Error> {
    let data = DataSpec::new(Source::csv("digits.csv.gz"))
        .with(|d| (d.scale, d.split) = (1.0 / 16.0, Split::TestEvery(5)));
    let model = Model::forward("digits.onnx", Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, data).with(|s| s.epochs = 10);

    let job = JobGraph::of_training("mine", training);

    let client = Client::find()?;
    let submitted = client.submit(&job).await?;
    submitted.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let done = client.wait(&submitted.id, |view| println!("loss {:?}", view.job.loss)).await?;
    println!("accuracy {:?}", done.job.test[Metric::Accuracy]);
    client.weights(&submitted.id).await?.save("digits.safetensors")?;
    Ok(())
}
