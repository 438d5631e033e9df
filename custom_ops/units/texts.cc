// The tagger, files of data, sparsemax.
#include "kernels/linear_kernels.cc"
#include "kernels/sparse_scores_kernels.cc"
#include "kernels/sparsemax_kernels.cc"
#include "kernels/text_embeddings_kernels.cc"
#include "kernels/text_terms_kernels.cc"
#include "kernels/xc_lines_kernels.cc"
