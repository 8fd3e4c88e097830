//! docs/job-file.md lists every field of a job file, with what stands there if it is left out, and an example.
//! `SYNCLINE_WRITE_DOCS=1` writes it anew. That no field is missing is asked of the reader itself: it answers a field that
//! it does not know with those that it does.

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
    Table { title: "The file", about: "At the top of the file.", frame: "@\n", fields: &[
        ("id",   "text", "", "id = 'digits'", "Name of the job: 1 to 64 of a-z, 0-9, `.`, `_`, `-`, beginning with a letter or digit"),
        ("node", "tables", "", "node = [{ name = 'n', do = 'snapshot' }]", "The nodes of the graph, usually written as `[[node]]`; exactly one trains"),
    ]},
    Table { title: "`[[node]]`", about: "One for each thing to do.", frame: "id = 'a'\n[[node]]\n@\n", fields: &[
        ("name",     "text", "", "name = 'train'", "Name of the node, formed as the id"),
        ("after",    "list of names", "[]", "after = ['train']", "Nodes that come before this one"),
        ("do",       "`train`, `evaluate` or `snapshot`", "", "do = 'train'", "`evaluate` measures loss and metrics on the test part, `snapshot` writes the parameters"),
        ("model",    "table", "", "model.ready = { onnx = 'train.onnx' }", "What is trained: `forward` or `ready`, see below; only where the node trains"),
        ("data",     "table", "", "data = { source = { safetensors = { path = 'a.safetensors' } } }", "What it is trained on, see below; only where the node trains"),
        ("retries",  "integer", "2", "retries = 5", "Attempts after the first, where the node evaluates or writes a snapshot; iterations of training are repeated as often as it takes"),
        ("settings", "table", "{}", "settings = { epochs = 3 }", "How it is trained, see below; only where the node trains"),
    ]},
    Table { title: "`model.forward`", about: "A model as a framework exports it ([models.md](models.md)).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\n[node.model.forward]\n@\n", fields: &[
        ("onnx",         "path", "", "onnx = 'model.onnx'", "The file, relative to the job file; it may end in `.gz`"),
        ("loss",         "text", "", "loss = 'softmax-cross-entropy'", "`softmax-cross-entropy`, `bce-with-logits`, `mse`, `l1` or `huber`; or `output`, which the model has computed itself"),
        ("loss_options", "table", "{}", "loss_options = { label_smoothing = 0.1 }", "Settings of the loss, see below"),
        ("output",       "text", "", "output = 'logits'", "Output, or another value, that the loss looks at; the first float output if left out"),
        ("weights",      "path or table", "", "weights = 'digits.safetensors'", "First values of all that trains, such as the snapshot of another job, in place of those in the model; or a table, see below"),
    ]},
    Table { title: "`weights` in `model.forward`", about: "More in [models.md](models.md#fine-tuning).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.forward.onnx = 'm'\nmodel.forward.loss = 'mse'\n[node.model.forward.weights]\n@\n", fields: &[
        ("path",    "path", "", "path = 'body.safetensors'", "The file, relative to the job file"),
        ("partial", "boolean", "false", "partial = true", "It may hold a part of what trains: what fits by name and shape is taken, all else keeps the values of the ONNX file, and submission says which"),
    ]},
    Table { title: "`model.forward.loss_options`", about: "Each belongs to some losses only.", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\n[node.model.forward]\nonnx = 'm'\nloss = 'mse'\n[node.model.forward.loss_options]\n@\n", fields: &[
        ("label_smoothing", "number", "0.0", "label_smoothing = 0.1", "Share of the probability that is spread over all classes"),
        ("class_weights",   "list of numbers", "[]", "class_weights = [1.0, 2.0]", "One weight for each class"),
        ("ignore_index",    "integer", "", "ignore_index = -100", "Samples with this label count nothing"),
        ("class_axis",      "integer", "", "class_axis = 1", "Axis of the classes; negative counts from the back"),
        ("top_k",           "integer", "", "top_k = 5", "Also count the labels among the k best scores"),
        ("perplexity",      "boolean", "false", "perplexity = true", "Also report the perplexity"),
        ("pos_weight",      "list of numbers", "[]", "pos_weight = [2.0]", "`bce-with-logits`: how much a label 1 weighs against a label 0, one number or one for each class"),
        ("delta",           "number", "", "delta = 1.5", "`huber`: where it turns from squared to absolute; 1 if left out"),
    ]},
    Table { title: "`model.ready`", about: "A training graph from elsewhere.", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\n[node.model.ready]\n@\n", fields: &[
        ("onnx", "path", "", "onnx = 'train.onnx'", "The file, relative to the job file; it may end in `.gz`"),
        ("weights", "path", "", "weights = 'first.safetensors'", "First values, where the graph does not hold them"),
    ]},
    Table { title: "`[node.data]`", about: "More in [data.md](data.md).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data]\n@\n", fields: &[
        ("source",        "table", "", "source = { csv = { path = 'a.csv' } }", "Where the samples are: one of `csv`, `idx`, `cifar10`, `text`, `safetensors`, `npz`, `npy`, see below"),
        ("test",          "table", "", "test = { csv = { path = 'b.csv' } }", "The test part, where it lies in files of its own; as `source`"),
        ("validation",    "table", "", "validation = { csv = { path = 'c.csv' } }", "The validation part, where it lies in files of its own; as `source`"),
        ("validation_percent", "integer", "", "validation_percent = 10", "So many in a hundred of the samples that would train are held out as the validation part, chosen by the seed; 1 to 99, not beside `validation`"),
        ("scale",         "number", "1.0", "scale = 0.0625", "Floats are multiplied by this"),
        ("mean",          "list of numbers", "[]", "mean = [0.5]", "Subtracted after that: one number for each channel, or one for all"),
        ("std",           "list of numbers", "[]", "std = [0.25]", "Divided by after that, likewise"),
        ("standardize",   "boolean", "false", "standardize = true", "Compute `mean` and `std` from the samples that train, at submission; see [data.md](data.md#what-the-model-gets)"),
        ("split",         "`all`, `{ test_every = N }` or `{ test_last_percent = N }`", "'all'", "split = { test_every = 5 }", "Which samples of `source` test"),
        ("sample_shape",  "list of integers", "[]", "sample_shape = [1, 8, 8]", "Shape of one sample, where the file does not say it"),
        ("layout",        "`nhwc`", "", "layout = 'nhwc'", "Order of the axes of images in the files, where it is not channels, height, width"),
        ("augment",       "table", "{}", "augment = { flip = true, crop = 4 }", "How images change while they train, see below"),
        ("digest",        "text", "", "digest = 'ab12'", "BLAKE3 of the files; filled in at submission"),
        ("file_digests",  "list of texts", "[]", "file_digests = ['ab12', 'cd34']", "The same of each file, where they are several; filled in at submission"),
        ("train_samples", "integer", "0", "train_samples = 100", "Filled in at submission"),
        ("class_names",   "list of texts", "[]", "class_names = ['no', 'yes']", "What the classes are called, where labels are texts; filled in at submission"),
    ]},
    Table { title: "`[node.data.augment]`", about: "Of samples that train, never of those that are evaluated; more in [data.md](data.md#images-that-change-while-they-train).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.data.augment]\n@\n", fields: &[
        ("flip",   "boolean", "false", "flip = true", "Half of the images are mirrored, left to right"),
        ("crop",   "integer", "0", "crop = 4", "Pixels by which an image is padded on each side, before one of its size is cut out anywhere"),
        ("cutout", "integer", "0", "cutout = 8", "Side in pixels of a square, anywhere in the image, that becomes the mean of each channel"),
    ]},
    Table { title: "`source.csv`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\n[node.data.source.csv]\n@\n", fields: &[
        ("path",          "path or list of paths", "", "path = ['a.csv.gz', 'part-*.csv']", "The files, relative to the job file; `*` stands for any characters in the name of a file"),
        ("label_columns", "integer", "1", "label_columns = 2", "How many of the last columns are the label"),
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
        ("optimizer",     "text or table", "'sgd'", "optimizer = 'adam'", "`sgd`, `momentum` (0.9), `nesterov` (0.9), `adam`, `adamw` (decay 0.01), `rmsprop`; or a table with all settings, see below"),
        ("learning_rate", "number", "", "learning_rate = 0.03", "Learning rate behind the warmup. If left out 0.1 for `sgd`, 0.01 for `momentum`, `nesterov` and `rmsprop`, 0.001 for `adam` and `adamw`"),
        ("warmup",        "number", "0.0", "warmup = 0.05", "Share of the training over which the learning rate rises in a straight line from 0, see [learning-rate.md](learning-rate.md)"),
        ("decay",         "`constant`, `cosine`, `linear`, `exponential`, `one-cycle` or `{ steps = [[SHARE, FACTOR], ...] }`", "'constant'", "decay = 'cosine'", "How it goes down behind the warmup, see [learning-rate.md](learning-rate.md#decay)"),
        ("min_learning_rate", "number", "0.0", "min_learning_rate = 1e-5", "The learning rate at which a decay ends that is not of steps; above 0 for `exponential`"),
        ("policy",        "text", "'elastic-bsp:15'", "policy = 'bsp'", "When workers meet, see [policies.md](policies.md)"),
        ("batch",         "integer", "32", "batch = 64", "Samples per iteration and worker"),
        ("micro_batch",   "integer", "", "micro_batch = 16", "Most samples that a worker computes on at once: it takes a larger batch in pieces, one after the other, and pushes their mean once, see [data.md](data.md#batches-that-do-not-fit-into-memory). If left out, a batch is computed at once"),
        ("epochs",        "integer", "1", "epochs = 40", "How often each sample is seen"),
        ("drop_last",     "boolean", "false", "drop_last = true", "Leave out the samples of an epoch that do not fill a batch; other ones each time"),
        ("shuffle",       "boolean", "true", "shuffle = false", "Take the samples of each epoch in an order of its own. If `false`, every epoch takes them in the order of the files, see [data.md](data.md#which-samples-train)"),
        ("seed",          "integer", "0", "seed = 7", "Order of the samples, which of them are held out, how images change, and Dropout"),
        ("on_nan",        "`fail` or `skip`", "'fail'", "on_nan = 'skip'", "What becomes of an iteration whose loss or gradient is no number; a job fails that skips a whole epoch (E596)"),
        ("clip_norm",     "number", "", "clip_norm = 1.0", "Longest gradient that is applied"),
        ("min_workers",   "integer", "1", "min_workers = 2", "Workers without which the job does not start, or start again where nobody is at work any more, as after a pause"),
        ("max_workers",   "integer", "", "max_workers = 4", "Most workers that it gets. If left out, all there are: a job that comes later then waits until this one is over"),
        ("queue_limit_s", "integer", "", "queue_limit_s = 600", "Seconds for which the job may wait for its first worker; then it fails (E060). It waits for ever if left out"),
        ("ahead",         "integer", "", "ahead = 2", "Iterations that are granted ahead, 1 to 64. If left out, a few, and more where steps are short and the policy allows it"),
        ("checkpoint",    "table", "", "checkpoint = { every_s = 60 }", "What a lost shard brings the job back to, see below"),
        ("evaluate",      "table", "", "evaluate = { every_epochs = 1 }", "How often the model is evaluated while it trains, on the validation part or else the test part, and what that decides, see below"),
        ("resume",        "path", "", "resume = 'mine.safetensors'", "A file of `syncline checkpoint`, from which the training goes on; `submit --resume` names one as well"),
        ("compression",   "`none`, `bf16`, `fp16`, `int8`, `{ top_k = SHARE }` or `auto`", "'none'", "compression = { top_k = 0.01 }", "How gradients travel from workers to shards (SHARE up to 0.5), see [policies.md](policies.md#fewer-bytes)"),
        ("pull_compression", "`none`, `bf16` or `fp16`", "'none'", "pull_compression = 'fp16'", "How parameters travel to workers that share no memory with the shards"),
        ("params",        "path", "", "params = 'names.txt'", "The parameters to train, one name a line, as PyTorch prints them: they decide alone"),
        ("train",         "list of names", "[]", "train = ['head.*']", "The parameters to train, all if empty; `*` stands for any characters. `params` comes before it, `freeze` still holds"),
        ("freeze",        "list of names", "[]", "freeze = ['features.*']", "Parameters that stay as they are; `*` stands for any characters"),
        ("sparse",        "list of names", "[]", "sparse = ['*.embedding.weight']", "Tables of which only the rows travel that a batch reads, see [policies.md](policies.md#rows-of-tables); `*` stands for any characters"),
        ("groups",        "tables", "[]", "groups = [{ params = ['*.bias'], weight_decay = 0.0 }]", "Parameters that train with another weight decay or learning rate than the rest, see below"),
        ("eval_mode",     "boolean or list of names", "false", "eval_mode = ['body.*']", "Train as the model evaluates, or a part of it: remembered statistics, no Dropout, see [models.md](models.md#the-form-in-which-it-trains); `*` stands for any characters"),
        ("precision",     "`f32`, `tf32`, `bf16` or `fp16`", "'f32'", "precision = 'bf16'", "Type of products; parameters and gradients stay float32"),
        ("recompute",     "boolean", "false", "recompute = true", "Make cheap values again in the backward pass: less memory, a little more time"),
        ("check",         "boolean", "true", "check = false", "Compare the gradients with a difference of the loss at submission, and refuse wrong ones"),
    ]},
    Table { title: "`[[node.settings.groups]]`", about: "At least one of the last two; more in [learning-rate.md](learning-rate.md#groups-of-parameters).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[[node.settings.groups]]\n@\n", fields: &[
        ("params",       "list of names", "", "params = ['*.bias', '*norm*']", "Parameters that are trained; `*` stands for any characters. One that several groups name belongs to the first of them"),
        ("weight_decay", "number", "", "weight_decay = 0.0", "In place of the weight decay of the optimizer"),
        ("learning_rate_factor", "number", "", "learning_rate_factor = 0.1", "What the learning rate of the moment is multiplied by, above 0 and up to 1000"),
    ]},
    Table { title: "`[node.settings.checkpoint]`", about: "At least one of the first two; more in [operations.md](operations.md#a-shard-is-killed).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.checkpoint]\n@\n", fields: &[
        ("every_s",      "integer", "", "every_s = 60", "Seconds from one checkpoint to the next"),
        ("every_epochs", "integer", "", "every_epochs = 1", "Complete epochs from one checkpoint to the next, at least: one is taken when the one before is written and no push is under way, so that of very short epochs some have none"),
        ("keep",         "integer", "2", "keep = 3", "The newest so many stay, up to 100, until the job is done, and then that of its end"),
    ]},
    Table { title: "`[node.settings.evaluate]`", about: "At least one of the first two; more in [data.md](data.md#evaluating-while-it-trains).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.evaluate]\n@\n", fields: &[
        ("every_s",      "integer", "", "every_s = 60", "Seconds from one evaluation to the next"),
        ("every_epochs", "integer", "", "every_epochs = 1", "Complete epochs from one evaluation to the next"),
        ("monitor",      "`loss` or `accuracy`", "'loss'", "monitor = 'accuracy'", "The figure that says what is better"),
        ("keep_best",    "boolean", "false", "keep_best = true", "The shards keep the parameters of the best evaluation, and the training hands on these"),
        ("early_stopping", "table", "", "early_stopping = { patience = 5 }", "When training ends before its epochs do, see below"),
    ]},
    Table { title: "`early_stopping` in `evaluate`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.evaluate]\nevery_epochs = 1\n[node.settings.evaluate.early_stopping]\n@\n", fields: &[
        ("patience",  "integer", "", "patience = 5", "So many evaluations in a row have to bring nothing better"),
        ("min_delta", "number", "0.0", "min_delta = 0.001", "What is better by no more than this counts as no better"),
    ]},
    Table { title: "`optimizer = { sgd = { ... } }`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.sgd]\n@\n", fields: &[
        ("weight_decay", "number", "0.0", "weight_decay = 1e-4", "Added to the gradient, times the weight"),
    ]},
    Table { title: "`optimizer = { momentum = { ... } }`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.momentum]\n@\n", fields: &[
        ("momentum",     "number", "", "momentum = 0.9", "Share of the velocity that is kept"),
        ("nesterov",     "boolean", "false", "nesterov = true", "Look ahead"),
        ("weight_decay", "number", "0.0", "weight_decay = 1e-4", "Added to the gradient, times the weight"),
    ]},
    Table { title: "`optimizer = { adam = { ... } }`", about: "", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.adam]\n@\n", fields: &[
        ("beta1",        "number", "0.9", "beta1 = 0.8", "Share of the mean gradient that is kept"),
        ("beta2",        "number", "0.999", "beta2 = 0.99", "Share of the mean square that is kept"),
        ("epsilon",      "number", "1e-8", "epsilon = 1e-6", "Added to the root of the mean square"),
        ("weight_decay", "number", "0.0", "weight_decay = 0.01", "Added to the gradient, times the weight"),
        ("decoupled",    "boolean", "false", "decoupled = true", "Take the decay off the weight instead (AdamW)"),
    ]},
    Table { title: "`optimizer = { rmsprop = { ... } }`", about: "As `torch.optim.RMSprop`; the formula is in [learning-rate.md](learning-rate.md#rmsprop).", frame: "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel.ready.onnx = 'm'\ndata.source.safetensors.path = 'd'\n[node.settings.optimizer.rmsprop]\n@\n", fields: &[
        ("alpha",        "number", "0.99", "alpha = 0.9", "Share of the mean square that is kept"),
        ("epsilon",      "number", "1e-8", "epsilon = 1e-6", "Added to the root of the mean square"),
        ("momentum",     "number", "0.0", "momentum = 0.9", "Share of the velocity that is kept"),
        ("centered",     "boolean", "false", "centered = true", "Divide by the deviation from the mean gradient; not beside `momentum`"),
        ("weight_decay", "number", "0.0", "weight_decay = 1e-4", "Added to the gradient, times the weight"),
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
         to be there, unless the text says otherwise; one that is not listed here is refused. Whole files: \
         `examples/jobs`.\n\n`syncline submit FILE --set settings.batch=64` gives a field another value for once. The key begins with the name of a \
         node, or with a field of the training node (`train.settings.batch` is the same); a value that TOML does not know is a \
         text, and so is a number where a text is expected (`id=2024`), and a table such as `data.split={test_every=4}` takes the place of the whole one in the file.\n\nThis page is written by workers/tests/job_file_document.rs.\n",
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
    for Table { title, frame, fields, .. } in TABLES {
        let mut listed: Vec<String> = fields.iter().map(|field| field.0.to_owned()).collect();
        listed.sort_unstable();
        assert_eq!(known(frame), listed, "{title}");
    }
}

#[test]
fn what_stands_for_a_field_that_is_left_out_is_its_default() {
    for Table { title, frame, fields, .. } in TABLES {
        let needed = |except: &str| -> String {
            let given = fields.iter().filter(|field| field.2.is_empty() && field.0 != except);
            // Of the fields without a default only those that cannot be left out.
            given.map(|field| format!("{}\n", field.3)).collect()
        };
        for (name, _, default, example, _) in *fields {
            let body = whole(frame, &needed(name));
            if !default.is_empty() {
                let stated = whole(frame, &format!("{}{name} = {default}\n", needed(name)));
                assert_eq!(read(&stated), read(&body), "{title}: {name} = {default}");
            }
            let shown = read(&whole(frame, &format!("{}{example}\n", needed(name))));
            assert!(shown.is_ok(), "{title}: {example}: {shown:?}");
            if !default.is_empty() {
                assert_ne!(shown, read(&body), "{title}: {example} is the default");
            }
        }
    }
}

/// The file with these fields, and with what its place needs behind them.
fn whole(frame: &str, fields: &str) -> String {
    let text = frame.replace("@\n", fields);
    match text.contains("do = 'train'") && !text.contains("data") {
        true => format!("{text}\n[node.data.source.safetensors]\npath = 'd'\n"),
        false => text,
    }
}
