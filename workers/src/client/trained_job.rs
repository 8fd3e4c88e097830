//! A trained model with what it takes to try it on samples.

use syncline_rpc::within;
use syncline_scheduler::{
    ids::JobId,
    spec::{SettingList, TrainSpec},
};

use super::{Client, ClientError, FetchError, Weights, calls::CALL_TIMEOUT, weights::Kept};
use crate::export::{TrainedModel, fill_of_job};

/// What a job has learned, how it was evaluated, and on what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrainedJob {
    /// Its settings, as the engine has them.
    pub train: TrainSpec,
    /// Its settings, as a job file has them.
    pub settings: SettingList,
    /// The forward model with the trained parameters in it, in the form that predicts.
    pub model: TrainedModel,
    /// The trained parameters alone.
    pub weights: Weights,
    /// The graph with which it is evaluated, as bytes of a `.onnx` file: parameters are inputs.
    pub evaluation_graph: Vec<u8>,
}

impl Client {
    /// The settings of a training, as the engine has them.
    ///
    /// # Errors
    /// E131 if there is no such job, E138 if it is one of general tasks; E300 if no engine is reached, E136
    /// if none leads.
    pub async fn training(&self, job: &JobId) -> Result<TrainSpec, ClientError> {
        self.retry(|client| {
            let job = job.clone();
            async move { client.training(within(CALL_TIMEOUT), job).await }
        })
        .await
    }

    /// A trained model with what it takes to try it on samples.
    ///
    /// # Errors
    /// As [`trained_model`](Self::trained_model), and E138 if the job is one of general tasks.
    pub async fn trained_job(&self, job: &JobId) -> Result<TrainedJob, FetchError> {
        let status = self.status(job).await?.job;
        let train = self.training(job).await?;
        // Refused where the job was replaced: then the settings may be of the other one.
        let Kept { model, snapshot: weights, .. } = self.kept(&status.job_ref()).await?;
        let settings = status.settings;
        let (model, weights) = (self.blob(model).await?, Weights::of_file(self.blob(weights).await?));
        let model = fill_of_job(&model, job, weights.as_bytes(), &train.data)?;
        let evaluation_graph = self.blob(train.model.evaluation_graph).await?;
        Ok(TrainedJob { train, settings, model, weights, evaluation_graph })
    }
}
