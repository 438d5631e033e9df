"""The names of the API by task, in the order of its pages."""

#: Functions and classes of tfxclass itself.
TOP_LEVEL = {
    "Predictions": ["top_k", "calibrate", "plot_reliability"],
    "Classes that come and go": [
        "initialize_classes",
        "add_classes",
        "next_class_ids",
        "remove_classes",
    ],
    "Class vectors from elsewhere": [
        "replace_head",
        "set_class_vectors",
        "to_dense",
    ],
    "Choosing a head": ["advise", "Advice", "check", "estimate", "Estimate"],
    "Many devices": ["plan", "memory_per_replica"],
    "Saving": ["save_model", "save_weights"],
    "Diagnosis": ["retain_probabilities", "show_build"],
}

#: Names of each module.
GROUPS = {
    "layers": {
        "Sampled heads": [
            "SampledSoftmax",
            "SelectiveSoftmax",
            "LSHSoftmax",
            "TwoTowerSoftmax",
            "ClassTower",
            "NegativeSampling",
            "NoiseContrastive",
        ],
        "Exact heads": [
            "FullSoftmax",
            "HierarchicalSoftmax",
            "AdaptiveSoftmax",
            "Sparsemax",
            "DropMax",
        ],
        "Smaller class matrices": [
            "ProjectedSoftmax",
            "AdaptiveProjectedSoftmax",
            "DifferentiatedSoftmax",
            "split_by_frequency",
        ],
        "Many devices": ["ShardedSoftmax"],
        "Options and inputs": ["Cosine", "SparseDense"],
        "Base classes": [
            "OutputHead",
            "ClassHead",
            "BlockHead",
        ],
    },
    "optimizers": {
        "Optimizers": [
            "HeadAdam",
            "LazyAdam",
            "LazyAdamW",
            "LazySGD",
            "LazyAdagrad",
            "MultiOptimizer",
        ],
        "Local SGD": ["LocalSGD", "AverageReplicas", "growing_stages", "Stage"],
    },
    "samplers": {
        "Without an index": [
            "UniformSampler",
            "LogUniformSampler",
            "FrequencySampler",
            "BatchSampler",
            "AutoSampler",
        ],
        "With an index": [
            "HashingForestSampler",
            "LSHSampler",
            "LSHTables",
            "AdaptiveAllocation",
        ],
        "For comparisons": ["TopKSampler", "KMeansSampler", "PCAHashSampler"],
        "Base classes": ["Sampler", "Sample"],
    },
    "losses": {
        "Options of a head": ["LossOptions"],
        "Functions": [
            "sparsemax",
            "sparsemax_loss",
            "softmax_cross_entropy",
            "cosface",
            "arcface",
        ],
        "Base classes": ["HeadLoss", "Targets", "as_targets"],
    },
    "metrics": {
        "Ranking": [
            "TopKAccuracy",
            "RecallAtK",
            "MeanReciprocalRank",
            "PrecisionAtK",
            "NDCGAtK",
            "RPrecisionAtK",
            "PropensityScoredPrecisionAtK",
            "propensities",
        ],
        "Probabilities": ["F1Score"],
        "Identities": [
            "verification_accuracy",
            "true_positive_rate",
            "hit_rate",
        ],
        "Diagnosis": [
            "CumulativeProbability",
            "NormalizedCumulativeGradient",
        ],
        "Base classes": ["HeadMetric"],
    },
    "callbacks": {
        "Callbacks": [
            "AtomicModelCheckpoint",
            "ExactLast",
            "SamplerLog",
            "SecondsLog",
        ]
    },
    "export": {
        "Servers": ["saved_model", "InvertedLists", "onnx"],
        "Vector search": ["vectors", "vector_queries"],
    },
    "text": {
        "Tagging": ["Tagger", "TaggerClassifier", "Field", "TextFile"],
        "Features of texts": ["TextFeatures"],
    },
    "data": {"Files": ["XCFile"]},
    "retrieval": {
        "Sequences": ["number_items", "pad", "next_items"],
        "Splits": [
            "leave_one_out",
            "split_sessions",
            "split_at",
            "Split",
            "Questions",
        ],
        "Evaluation": ["evaluate"],
    },
    "calibration": {
        "Calibration": ["calibrate", "Calibration"],
        "Reliability": ["reliability_of", "Reliability"],
    },
    "trees": {
        "Trees": ["clustered", "huffman", "balanced", "hierarchy", "Tree"],
        "Class vectors": ["class_vectors"],
    },
    "recovery": {"Recovery": ["recover"]},
    "distribute": {"Training": ["fit"]},
    "planning": {
        "Plans": ["plan", "Plan", "PlanRow"],
        "Network": ["Link"],
    },
    "advice": {
        "Advice": ["advise", "check"],
        "Results": ["Advice", "Trial"],
    },
    "plot": {
        "Figures": [
            "plot_reliability",
            "plot_recall",
            "RecallCurve",
        ]
    },
    "initializers": {"Initializers": ["LogOdds"]},
}

#: Public names that the pages leave out, by module.
LEFT_OUT = {
    "samplers": {"get"},
    "initializers": {"rms_of"},
}

#: Methods and properties that a page shows, by class. Others are for
#: subclasses and for the library itself.
MEMBERS = {
    "Advice": ["head", "optimizer", "code"],
    "Estimate": ["total_bytes"],
    "advice.Advice": ["head", "optimizer", "code"],
    "calibration.Reliability": ["expected_calibration_error"],
    "data.XCFile": ["batches", "counts"],
    "layers.OutputHead": [
        "loss",
        "compute_loss",
        "logits",
        "top_k",
        "num_answers",
        "is_sampled",
    ],
    "layers.TwoTowerSoftmax": ["set_class_features", "encode", "refresh"],
    "losses.Targets": ["is_labelled"],
    "optimizers.LocalSGD": ["average"],
    "optimizers.MultiOptimizer": ["optimizer_of"],
    "samplers.Sample": ["inverse_counts"],
    "samplers.Sampler": ["sample", "update"],
    "trees.Tree": ["live", "depths", "path", "nbytes"],
}
