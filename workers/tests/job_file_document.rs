//! docs/job-file.md lists every field of a job file, with what stands there if it is left out, and an
//! example. `SYNCLINE_WRITE_DOCS=1` writes it anew. That no field is missing is asked of the reader itself:
//! it answers a field that it does not know with those that it does.

use std::{fmt::Write as _, fs, path::Path};

use syncline_workers::submit::JobFile;

/// A field: its name, its type, its default as it would be written (empty: none), an example, and what it is.
type Field = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// A table of the file: its heading, where it stands, its fields. `@` in a frame is where fields are written.
struct Table {
    title: &'static str,
    about: &'static str,
    frame: &'static str,
    fields: &'static [Field],
}

#[rustfmt::skip]
const TABLES: &[Table] = &[
    Table { title: "A file of one training", about: "Such a file is one training. Syncline makes a node `train` of it and, if the data has a test set, a node `test` that evaluates the result. In a file with `[[node]]` (below) write `[node.data]` for `[data]`, and so on.", frame: "@\n", fields: &[
        ("id",       "string", "", "id = 'digits'", "Name of the job: 1 to 64 of a-z, 0-9, `.`, `_`, `-`, beginning with a letter or digit"),
        ("model",    "table", "", "model.ready = { onnx = 'train.onnx' }", "What is trained: `forward` or `ready`, see below"),
        ("data",     "table", "", "data = { source = { safetensors = { path = 'a.safetensors' } } }", "What it is trained on, see below"),
        ("settings", "table", "{}", "settings = { epochs = 3 }", "How it is trained, see below"),
    ]},
    Table { title: "A file of nodes", about: "At the top of the file, for other names, other nodes, or a snapshot as a file.", frame: "@\n", fields: &[
        ("id",   "string", "", "id = 'digits'", "Name of the job, as above"),
        ("node", "tables", "", "node = [{ name = 'n', do = 'snapshot' }]", "The nodes of the graph, usually written as `[[node]]`; exactly one trains"),
    ]},
    Table { title: "`[[node]]`", about: "One for each step of the job.", frame: "id = 'a'\n[[node]]\n@\n", fields: &[
        ("name",     "string", "", "name = 'train'", "Name of the node, formed as the id"),
        ("after",    "list of names", "[]", "after = ['train']", "Nodes this one depends on"),
        ("do",       "`train`, `evaluate` or `snapshot`", "", "do = 'train'", "`evaluate` measures loss and metrics on the test set, `snapshot` writes the parameters to a file; without a `snapshot` the last parameters are kept when the job ends"),
        ("model",    "table", "", "model.ready = { onnx = 'train.onnx' }", "What is trained: `forward` or `ready`, see below; only where the node trains"),
        ("data",     "table", "", "data = { source = { safetensors = { path = 'a.safetensors' } } }", "What it is trained on, see below; only where the node trains"),
        ("retries",  "integer", "2", "retries = 5", "Attempts after the first, where the node evaluates or writes a snapshot; iterations of training are repeated as often as it takes"),
        ("settings", "table", "{}", "settings = { epochs = 3 }", "How it is trained, see below; only where the node trains"),
    ]},
    Table { title: "`model.forward`", about: "A model as a framework exports it ([models.md](models.md)).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\n[node.model.forward]\n@\n", fields: &[
        ("onnx",         "path", "", "onnx = 'model.onnx'", "The file, relative to the job file; it may end in `.gz`"),
        ("loss",         "string", "", "loss = 'softmax-cross-entropy'", "`softmax-cross-entropy` (or `cross-entropy`), `bce-with-logits`, `mse`, `l1` or `huber`; or `output`, which the model has computed itself"),
        ("loss_options", "table", "{}", "loss_options = { label_smoothing = 0.1 }", "Settings of the loss, see below"),
        ("output",       "string", "", "output = 'logits'", "Output, or another value, that the loss looks at; the first float output if left out"),
        ("weights",      "path or table", "", "weights = 'digits.safetensors'", "First values of all that trains, such as the snapshot of another job, in place of those in the model; or a table, see below"),
    ]},
    Table { title: "`weights` in `model.forward`", about: "More in [models.md](models.md#fine-tuning).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.forward.onnx = 'm'\nmodel.forward.loss = 'mse'\n[node.model.forward.weights]\n@\n", fields: &[
        ("path",    "path", "", "path = 'body.safetensors'", "The file, relative to the job file"),
        ("partial", "boolean", "false", "partial = true", "It may hold a part of what trains: what fits by name and shape is taken, all else keeps the values of the ONNX file, and submission says which"),
    ]},
    Table { title: "`model.forward.loss_options`", about: "Each belongs to some losses only.", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\n[node.model.forward]\nonnx = 'm'\nloss = 'mse'\n[node.model.forward.loss_options]\n@\n", fields: &[
        ("label_smoothing", "float", "0.0", "label_smoothing = 0.1", "Share of the probability that is spread evenly over all classes"),
        ("class_weights",   "list of floats, or `balanced`", "[]", "class_weights = [1.0, 2.0]", "One weight for each class; `balanced` counts the training samples at submission, see [models.md](models.md#losses)"),
        ("ignore_index",    "integer", "", "ignore_index = -100", "Samples with this label count nothing"),
        ("class_axis",      "integer", "", "class_axis = 1", "Axis of the classes; negative counts from the back. If left out, the last axis of `[batch, classes]` and `[batch, time, classes]`, axis 1 of four axes or more"),
        ("top_k",           "integer", "", "top_k = 5", "Also count the labels among the k best scores"),
        ("perplexity",      "boolean", "false", "perplexity = true", "Also report the perplexity"),
        ("pos_weight",      "list of floats, or `balanced`", "[]", "pos_weight = [2.0]", "`bce-with-logits`: how much a label 1 weighs against a label 0, one number or one for each class; `balanced` counts as above"),
        ("delta",           "float", "", "delta = 1.5", "`huber`: where it turns from squared to absolute; 1 if left out"),
    ]},
    Table { title: "`model.ready`", about: "A training graph from elsewhere.", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\n[node.model.ready]\n@\n", fields: &[
        ("onnx", "path", "", "onnx = 'train.onnx'", "The file, relative to the job file; it may end in `.gz`"),
        ("weights", "path", "", "weights = 'first.safetensors'", "First values, where the graph does not hold them"),
    ]},
    Table { title: "`[node.data]`", about: "More in [data.md](data.md).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data]\n@\n", fields: &[
        ("source",        "table", "", "source = { csv = { path = 'a.csv' } }", "Where the samples come from: one of `csv`, `idx`, `cifar10`, `text`, `safetensors`, `npz`, `npy`, see below"),
        ("test",          "table", "", "test = { csv = { path = 'b.csv' } }", "The test set, if it is in files of its own; as `source`"),
        ("validation",    "table", "", "validation = { csv = { path = 'c.csv' } }", "The validation set, if it is in files of its own; as `source`"),
        ("inputs",        "table of lists of names", "{}", "inputs = { categories = ['city', 'job'], numbers = ['age'] }", "The columns of a table that each input of the model takes, by their names in the header; see [data.md](data.md#columns-of-each-input)"),
        ("validation_percent", "integer", "", "validation_percent = 10", "Percentage of the training samples that is held out as the validation set, chosen by the seed, of each class its share; 1 to 99, not together with `validation`"),
        ("hold_out_seed", "integer", "", "hold_out_seed = 7", "Seed that chooses the samples of `test_percent` and `validation_percent`. If left out: 0 where there is a `test_percent`, else the `seed` of the settings"),
        ("scale",         "float", "1.0", "scale = 0.0625", "Floats are multiplied by this"),
        ("mean",          "list of floats", "[]", "mean = [0.5]", "Subtracted after that: one number for each channel, or one for all"),
        ("std",           "list of floats", "[]", "std = [0.25]", "Divisor after that, likewise"),
        ("standardize",   "boolean", "false", "standardize = true", "Compute `mean` and `std` from the training samples, at submission; see [data.md](data.md#shapes-normalization-and-labels)"),
        ("channel_axis",  "`first` or `last`", "'first'", "channel_axis = 'last'", "Axis of a sample that `mean`, `std` and `standardize` take channel by channel: `last` for sequences of time and features"),
        ("normalize",     "table of tables", "{}", "normalize = { image = { scale = 0.0625 }, table = { standardize = true } }", "The normalization of each input that has one of its own, see below; the five fields above hold for float inputs that have none"),
        ("split",         "`all`, `{ test_every = N }`, `{ test_percent = N }` or `{ test_last_percent = N }`", "'all'", "split = { test_every = 5 }", "How the test set is taken from `source`"),
        ("sample_shape",  "list of integers", "[]", "sample_shape = [1, 8, 8]", "Shape of one sample, where the file does not say it"),
        ("layout",        "`nhwc`", "", "layout = 'nhwc'", "Order of the axes of images in the files, where it is not channels, height, width"),
        ("augment",       "table", "{}", "augment = { flip = true, crop = 4 }", "Data augmentation, see below"),
    ]},
    Table { title: "`[node.data.normalize.NAME]`", about: "How one float input of the model is normalized, by its name; more in [data.md](data.md#each-input-by-its-own-normalization). Nothing of the same fields of `[node.data]` holds for it.", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.data.normalize.image]\n@\n", fields: &[
        ("scale",        "float", "1.0", "scale = 0.0625", "Its numbers are multiplied by this"),
        ("mean",         "list of floats", "[]", "mean = [0.5]", "Subtracted after that: one number for each channel, or one for all"),
        ("std",          "list of floats", "[]", "std = [0.25]", "Divisor after that, likewise"),
        ("standardize",  "boolean", "false", "standardize = true", "Compute `mean` and `std` from the training samples, at submission"),
        ("channel_axis", "`first` or `last`", "'first'", "channel_axis = 'last'", "Axis of a sample that these take channel by channel"),
    ]},
    Table { title: "Written by Syncline in `[node.data]`", about: "Filled in at submission; do not set them.", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data]\n@\n", fields: &[
        ("digest",        "string", "", "digest = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262'", "BLAKE3 of the files"),
        ("file_digests",  "list of strings", "[]", "file_digests = ['af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262']", "BLAKE3 of each file, if there are several"),
        ("train_samples", "integer", "0", "train_samples = 100", "Number of training samples"),
        ("class_names",   "list of strings", "[]", "class_names = ['no', 'yes']", "Names of the classes, if labels are strings"),
    ]},
    Table { title: "`[node.data.augment]`", about: "Data augmentation of training samples, never of those that are evaluated; more in [data.md](data.md#data-augmentation).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.data.augment]\n@\n", fields: &[
        ("flip",   "boolean", "false", "flip = true", "Half of the images are mirrored, left to right"),
        ("crop",   "integer", "0", "crop = 4", "Pixels by which an image is padded on each side, before one of its size is cut out anywhere"),
        ("cutout", "integer", "0", "cutout = 8", "Side in pixels of a square, anywhere in the image, that becomes the mean of each channel"),
    ]},
    Table { title: "`source.csv`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.csv]\n@\n", fields: &[
        ("path",          "path or list of paths", "", "path = ['a.csv.gz', 'part-*.csv']", "The files, relative to the job file; `*` stands for any characters in the name of a file"),
        ("label_columns", "integer", "1", "label_columns = 2", "How many of the last columns are the label; with 1, or left out, as many as the loss wants where one does not fit"),
        ("label_names",   "list of names", "[]", "label_names = ['class']", "The columns that are the label, by their names in the header, instead of the last ones"),
        ("skip_lines",    "integer", "0", "skip_lines = 1", "Lines at the top of each file that are left out"),
        ("separator",     "`,`, `;` or `tab`", "", "separator = ';'", "What separates columns; if left out what the first lines of a file show"),
    ]},
    Table { title: "`source.idx`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.idx]\n@\n", fields: &[
        ("images", "path or list of paths", "", "images = 'train-images.gz'", "The samples"),
        ("labels", "path or list of paths", "", "labels = 'train-labels.gz'", "The labels, a file for each of samples"),
    ]},
    Table { title: "`source.cifar10`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.cifar10]\n@\n", fields: &[
        ("paths", "path or list of paths", "", "paths = ['data_batch_1.bin']", "The files, one after the other"),
    ]},
    Table { title: "`source.text`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.text]\n@\n", fields: &[
        ("path",    "path", "", "path = 'a.txt'", "The file"),
        ("context", "integer", "", "context = 64", "Characters of one sample"),
        ("stride",  "integer", "0", "stride = 32", "Characters from one sample to the next; 0: as many as `context`"),
    ]},
    Table { title: "`source.safetensors`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.safetensors]\n@\n", fields: &[
        ("path", "path or list of paths", "", "path = 'a.safetensors'", "The files; arrays are called as the model's inputs, and `label`"),
    ]},
    Table { title: "`source.npz`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.npz]\n@\n", fields: &[
        ("path", "path or list of paths", "", "path = 'a.npz'", "The files; arrays are called as the model's inputs, and `label`"),
    ]},
    Table { title: "`source.npy`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.npy]\n@\n", fields: &[
        ("samples", "path or list of paths", "", "samples = 'x.npy'", "The samples, for a model with one input"),
        ("labels",  "path or list of paths", "", "labels = 'y.npy'", "The labels, a file for each of samples"),
    ]},
    Table { title: "`[node.settings]`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings]\n@\n", fields: &[
        ("optimizer",     "string or table", "'sgd'", "optimizer = 'adam'", "`sgd`, `momentum` (0.9), `nesterov` (0.9), `adam`, `adamw` (decay 0.01), `rmsprop`; or a table with all settings, see below"),
        ("learning_rate", "float", "", "learning_rate = 0.03", "Learning rate after the warmup. If left out 0.1 for `sgd`, 0.01 for `momentum`, `nesterov` and `rmsprop`, 0.001 for `adam` and `adamw`"),
        ("warmup",        "float", "0.0", "warmup = 0.05", "Share of the training over which the learning rate rises linearly from 0, see [learning-rate.md](learning-rate.md)"),
        ("decay",         "`constant`, `cosine`, `linear`, `exponential`, `one-cycle` or `{ steps = [[SHARE, FACTOR], ...] }`", "'constant'", "decay = 'cosine'", "Learning rate schedule after the warmup, see [learning-rate.md](learning-rate.md#decay)"),
        ("min_learning_rate", "float", "0.0", "min_learning_rate = 1e-5", "Learning rate at the end of the decay, but for `steps`; above 0 for `exponential`"),
        ("policy",        "string", "'elastic-bsp:15'", "policy = 'bsp'", "Synchronization policy, see [policies.md](policies.md)"),
        ("batch",         "integer", "32", "batch = 64", "Samples per iteration and worker"),
        ("micro_batch",   "integer", "", "micro_batch = 16", "Gradient accumulation: a worker computes on at most so many samples at once, and pushes the mean of a batch once, see [data.md](data.md#gradient-accumulation-micro_batch). If left out, a batch is computed at once"),
        ("epochs",        "integer", "1", "epochs = 40", "Passes over the training set"),
        ("drop_last",     "boolean", "false", "drop_last = true", "Leave out the samples of an epoch that do not fill a batch; different ones each time"),
        ("shuffle",       "boolean", "true", "shuffle = false", "Take the samples of each epoch in an order of its own. If `false`, every epoch takes them in the order of the files, see [data.md](data.md#training-order-and-batches)"),
        ("seed",          "integer", "0", "seed = 7", "Seed of the order of the samples, of those held out, of augmentation and of Dropout"),
        ("on_nan",        "`fail` or `skip`", "'fail'", "on_nan = 'skip'", "What to do when loss or gradient is NaN or infinite: `fail` the job, or `skip` the iteration; a job that skips a whole epoch fails (E596)"),
        ("clip_norm",     "float", "", "clip_norm = 1.0", "Maximum L2 norm of the gradient; larger ones are scaled down"),
        ("min_workers",   "integer", "1", "min_workers = 2", "Least number of workers with which the job starts, and starts again if none is left, as after a pause"),
        ("max_workers",   "integer", "", "max_workers = 4", "Largest number of workers that it gets. If left out, all there are: a later job then waits until this one is over"),
        ("queue_limit_s", "integer", "", "queue_limit_s = 600", "Seconds for which the job may wait for its first worker; then it fails (E060). It waits forever if left out"),
        ("ahead",         "integer", "", "ahead = 2", "Iterations that a worker is granted ahead, 1 to 64. If left out, a few, and more where steps are short and the policy allows it"),
        ("checkpoint",    "`none` or table", "{ every_s = 300, keep = 1, until_done = true }", "checkpoint = { every_s = 60 }", "How often a checkpoint is taken, to which the job goes back when a shard is lost, see below"),
        ("evaluate",      "table", "", "evaluate = { every_epochs = 1 }", "How often the model is evaluated while it trains, on the validation set or else the test set, and early stopping, see below"),
        ("resume",        "path", "", "resume = 'mine.safetensors'", "A file of `syncline checkpoint`, from which the training goes on; `submit --resume` names one as well"),
        ("compression",   "`none`, `bf16`, `fp16`, `int8`, `{ top_k = SHARE }` or `auto`", "'none'", "compression = { top_k = 0.01 }", "How gradients travel from workers to shards (SHARE up to 0.5), see [policies.md](policies.md#gradient-compression)"),
        ("pull_compression", "`none`, `bf16` or `fp16`", "'none'", "pull_compression = 'fp16'", "How parameters travel to workers that share no memory with the shards"),
        ("params",        "path", "", "params = 'names.txt'", "The parameters to train, one name a line, as PyTorch prints them: they decide alone"),
        ("train",         "list of names", "[]", "train = ['head.*']", "The parameters to train, all if empty; `*` stands for any characters. `params` comes before it, `freeze` still holds"),
        ("freeze",        "list of names", "[]", "freeze = ['features.*']", "Parameters that are not trained; `*` stands for any characters"),
        ("sparse",        "list of names", "[]", "sparse = ['*.embedding.weight']", "Embedding tables of which only the rows travel that a batch reads, see [policies.md](policies.md#sparse-embedding-tables); `*` stands for any characters"),
        ("groups",        "tables", "[]", "groups = [{ params = ['*.bias'], weight_decay = 0.0 }]", "Parameters that train with another weight decay or learning rate than the rest, see below"),
        ("eval_mode",     "boolean or list of names", "false", "eval_mode = ['body.*']", "Train in evaluation mode, all of the model or a part of it: BatchNormalization uses its running statistics, Dropout is off, see [models.md](models.md#training-and-evaluation-mode); `*` stands for any characters"),
        ("precision",     "`f32`, `tf32`, `bf16` or `fp16`", "'f32'", "precision = 'bf16'", "Compute type of matrix products and convolutions (mixed precision); parameters and gradients stay float32"),
        ("recompute",     "boolean", "false", "recompute = true", "Recompute cheap activations in the backward pass (activation checkpointing): less memory, a little more time"),
        ("check",         "boolean", "true", "check = false", "Compare the gradients with finite differences of the loss at submission, and refuse wrong ones"),
    ]},
    Table { title: "`[[node.settings.groups]]`", about: "At least one of the last two; more in [learning-rate.md](learning-rate.md#groups-of-parameters).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[[node.settings.groups]]\n@\n", fields: &[
        ("params",       "list of names", "", "params = ['*.bias', '*norm*']", "Parameters that are trained; `*` stands for any characters. One that several groups name belongs to the first of them"),
        ("weight_decay", "float", "", "weight_decay = 0.0", "Replaces the weight decay of the optimizer"),
        ("learning_rate_factor", "float", "", "learning_rate_factor = 0.1", "Factor of the current learning rate, above 0 and up to 1000"),
    ]},
    Table { title: "`[node.settings.checkpoint]`", about: "At least one of the first two, or `checkpoint = \"none\"` in place of the table; more in [failures.md](failures.md#checkpoints).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.checkpoint]\n@\n", fields: &[
        ("every_s",      "integer", "", "every_s = 60", "Seconds from one checkpoint to the next"),
        ("every_epochs", "integer", "", "every_epochs = 1", "Complete epochs from one checkpoint to the next, at least: one is taken when the one before is written and no push is under way, so that of very short epochs some have none"),
        ("keep",         "integer", "2", "keep = 3", "How many of the newest are kept, up to 100, until the job is done; then the last one"),
        ("until_done",   "boolean", "false", "until_done = true", "All are removed when the job is done, the last one too; one that failed or was canceled keeps them"),
    ]},
    Table { title: "`[node.settings.evaluate]`", about: "At least one of the first two; more in [data.md](data.md#evaluating-while-it-trains).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.evaluate]\n@\n", fields: &[
        ("every_s",      "integer", "", "every_s = 60", "Seconds of training from one evaluation to the next"),
        ("every_epochs", "integer", "", "every_epochs = 1", "Complete epochs from one evaluation to the next"),
        ("monitor",      "`loss`, `accuracy`, `top-k-accuracy`, `perplexity`, `macro-f1`, `macro-precision`, `macro-recall`, `positive-f1`, `positive-precision` or `positive-recall`", "'loss'", "monitor = 'accuracy'", "The metric that is compared"),
        ("keep_best",    "boolean", "false", "keep_best = true", "Keep the parameters of the best evaluation; they are the result of the training"),
        ("early_stopping", "table", "", "early_stopping = { patience = 5 }", "When training ends early, see below"),
        ("reduce_on_plateau", "table", "", "reduce_on_plateau = { patience = 3 }", "When the learning rate falls, see below"),
    ]},
    Table { title: "`early_stopping` in `evaluate`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.evaluate]\nevery_epochs = 1\n[node.settings.evaluate.early_stopping]\n@\n", fields: &[
        ("patience",  "integer", "", "patience = 5", "Number of evaluations in a row without improvement after which training ends"),
        ("min_delta", "float", "0.0", "min_delta = 0.001", "An improvement of no more than this does not count"),
    ]},
    Table { title: "`reduce_on_plateau` in `evaluate`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.evaluate]\nevery_epochs = 1\n[node.settings.evaluate.reduce_on_plateau]\n@\n", fields: &[
        ("patience",  "integer", "", "patience = 3", "Number of evaluations in a row, behind the last improvement or reduction, after which the learning rate falls"),
        ("factor",    "float", "0.1", "factor = 0.5", "It is multiplied by this, above 0 and below 1"),
        ("min_learning_rate", "float", "0.0", "min_learning_rate = 1e-5", "It falls no further than to this"),
    ]},
    Table { title: "`optimizer = { sgd = { ... } }`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.sgd]\n@\n", fields: &[
        ("weight_decay", "float", "0.0", "weight_decay = 1e-4", "L2 penalty: added to the gradient, times the parameter"),
    ]},
    Table { title: "`optimizer = { momentum = { ... } }`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.momentum]\n@\n", fields: &[
        ("momentum",     "float", "", "momentum = 0.9", "Momentum coefficient"),
        ("nesterov",     "boolean", "false", "nesterov = true", "Nesterov momentum"),
        ("weight_decay", "float", "0.0", "weight_decay = 1e-4", "L2 penalty: added to the gradient, times the parameter"),
    ]},
    Table { title: "`optimizer = { adam = { ... } }`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.adam]\n@\n", fields: &[
        ("beta1",        "float", "0.9", "beta1 = 0.8", "Decay rate of the first moment"),
        ("beta2",        "float", "0.999", "beta2 = 0.99", "Decay rate of the second moment"),
        ("epsilon",      "float", "1e-8", "epsilon = 1e-6", "Added to the denominator, for numerical stability"),
        ("weight_decay", "float", "0.0", "weight_decay = 0.01", "L2 penalty: added to the gradient, times the parameter"),
        ("decoupled",    "boolean", "false", "decoupled = true", "Subtract the decay from the parameter instead, times the learning rate (AdamW)"),
    ]},
    Table { title: "`optimizer = { rmsprop = { ... } }`", about: "As `torch.optim.RMSprop`; the formula is in [learning-rate.md](learning-rate.md#rmsprop).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.rmsprop]\n@\n", fields: &[
        ("alpha",        "float", "0.99", "alpha = 0.9", "Decay rate of the second moment"),
        ("epsilon",      "float", "1e-8", "epsilon = 1e-6", "Added to the denominator, for numerical stability"),
        ("momentum",     "float", "0.0", "momentum = 0.9", "Momentum coefficient"),
        ("centered",     "boolean", "false", "centered = true", "Divide by the deviation from the mean gradient; not beside `momentum`"),
        ("weight_decay", "float", "0.0", "weight_decay = 1e-4", "L2 penalty: added to the gradient, times the parameter"),
    ]},
];

/// What the reader says of a file, or what it understood.
fn read(text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    fs::write(&file, text).unwrap();
    let read = JobFile::load(&file)
        .map(|graph| format!("{:?} {:?}", graph.id, graph.nodes))
        .map_err(|error| error.to_string());
    let folder = folder.path().to_str().unwrap();
    read.map(|text| text.replace(folder, "")).map_err(|text| text.replace(folder, ""))
}

/// The fields of each place in the file, by its frame: several tables may be of one.
fn places() -> Vec<(&'static str, Vec<Field>)> {
    let mut places: Vec<(&str, Vec<Field>)> = Vec::new();
    for table in TABLES {
        match places.iter_mut().find(|(frame, _)| *frame == table.frame && *frame != WHOLE_FILE) {
            Some((_, fields)) => fields.extend(table.fields),
            None => places.push((table.frame, table.fields.to_vec())),
        }
    }
    places
}

/// The frame of what stands at the top, of which there are two forms.
const WHOLE_FILE: &str = "@\n";

/// The fields that the reader knows at this place.
fn known(frame: &str) -> Vec<String> {
    let error = read(&frame.replace('@', "zzz = 1")).unwrap_err();
    // The reader of TOML says it in one of two ways.
    let list = error.split_once("available keys: ").or_else(|| error.split_once("expected ")).unwrap().1;
    let list = list.lines().next().unwrap().replace("one of ", "").replace('`', "");
    let mut names: Vec<String> =
        list.split([',', ' ']).filter(|name| !name.is_empty() && *name != "or").map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn page() -> String {
    let mut text = String::from(
        "# The fields of a job file\n\nA job file is TOML. Paths in it are relative to the file. A field without a default has \
         to be there, unless the text says otherwise; one that is not listed here is refused. More whole files: \
         `examples/jobs`.\n\n```toml\nid = \"digits\"\nmodel.forward = { onnx = \"digits.onnx\", loss = \"softmax-cross-entropy\" }\n\n[data]\nsource = { csv = { path = \"digits.csv\" } }\nsplit = { test_every = 5 }\n\n[settings]\npolicy = \"elastic-bsp:15\"\nlearning_rate = 0.05\nbatch = 32\nepochs = 10\n```\n\n`syncline submit FILE --set settings.batch=64` gives a field another value for this submission only. A key begins with a field of \
         the training (`settings.batch`) or with a node's name (`test.retries`). A value that is not valid TOML is taken as a string. A table replaces the \
         whole table of the file.\n\nThis page is written by workers/tests/job_file_document.rs.\n",
    );
    for Table { title, about, fields, .. } in TABLES {
        writeln!(text, "\n## {title}\n").unwrap();
        if !about.is_empty() {
            writeln!(text, "{about}\n").unwrap();
        }
        text.push_str("| field | type | default | example | what |\n|---|---|---|---|---|\n");
        for (name, ty, default, example, what) in *fields {
            let default = if default.is_empty() { "—".to_owned() } else { format!("`{default}`") };
            writeln!(text, "| `{name}` | {ty} | {default} | `{example}` | {what} |").unwrap();
        }
    }
    text
}

#[test]
fn the_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/job-file.md");
    if std::env::var_os("SYNCLINE_WRITE_DOCS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap_or_default(), page(), "SYNCLINE_WRITE_DOCS=1 writes it anew");
}

#[test]
fn every_field_that_the_reader_knows_is_listed_and_no_other() {
    for Table { title, frame, .. } in TABLES {
        // What is one of two forms has a table for each.
        let here = TABLES.iter().filter(|table| table.frame == *frame);
        let mut listed: Vec<String> =
            here.flat_map(|table| table.fields).map(|field| field.0.to_owned()).collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(known(frame), listed, "{title}");
    }
}

#[test]
fn what_stands_for_a_field_that_is_left_out_is_its_default() {
    for (frame, fields) in places() {
        let needed = |except: &str| -> String {
            let given = fields.iter().filter(|field| field.2.is_empty() && field.0 != except);
            // Of the fields without a default only those that cannot be left out.
            given.map(|field| format!("{}\n", field.3)).collect()
        };
        for &(name, _, default, example, _) in &fields {
            let body = whole(frame, &needed(name));
            if !default.is_empty() {
                let stated = whole(frame, &format!("{}{name} = {default}\n", needed(name)));
                assert_eq!(read(&stated), read(&body), "{frame}: {name} = {default}");
            }
            let shown = read(&whole(frame, &format!("{}{example}\n", needed(name))));
            assert!(shown.is_ok(), "{frame}: {example}: {shown:?}");
            if !default.is_empty() {
                assert_ne!(shown, read(&body), "{frame}: {example} is the default");
            }
        }
    }
}

/// The file with these fields, and with what its place needs after them.
fn whole(frame: &str, fields: &str) -> String {
    let text = frame.replace("@\n", fields);
    match text.contains("do = 'train'") && !text.contains("data") {
        true => format!("{text}\n[node.data.source.safetensors]\npath = 'd'\n"),
        false => text,
    }
}
