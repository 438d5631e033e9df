// CPU kernel of the counter of a text's terms.
#include <string>
#include <vector>

#include "core/text_terms.h"
#include "external/farmhash_archive/src/farmhash.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

// As tf.strings.to_hash_bucket_fast with 2^63 - 1 buckets.
int64_t HashWord(const char* word, size_t size) {
  return util::Fingerprint64(word, size) % INT64_MAX;
}

class CountTermsOp : public OpKernel {
 public:
  explicit CountTermsOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string kind;
    OP_REQUIRES_OK(c, c->GetAttr("kind", &kind));
    OP_REQUIRES_OK(c, c->GetAttr("shortest", &options_.shortest));
    OP_REQUIRES_OK(c, c->GetAttr("longest", &options_.longest));
    options_.of_chars = kind == "chars";
    constexpr int64_t kMost = 64;
    OP_REQUIRES(c, options_.longest <= kMost,
                absl::InvalidArgumentError(
                    absl::StrCat("`longest` must be at most ", kMost,
                                 ". Received: ", options_.longest)));
  }

  void Compute(OpKernelContext* c) override {
    OP_REQUIRES_OK(c, CheckRank("texts", c->input(0), 1));
    const auto texts = c->input(0).flat<tstring>();
    std::vector<CountedTerms> counted(texts.size());
    // Nanoseconds of a text of 300 words.
    PoolOf(c)(texts.size(), 20000, [&](int64_t begin, int64_t end) {
      TermCounter counter(options_);
      for (int64_t i = begin; i < end; ++i) {
        counter.Count(texts(i), HashWord, &counted[i]);
      }
    });
    OP_REQUIRES_OK(c, Write(c, counted));
  }

 private:
  static absl::Status Write(OpKernelContext* c,
                            const std::vector<CountedTerms>& counted) {
    const int64_t n = counted.size();
    Tensor *splits, *hashes, *counts;
    TF_RETURN_IF_ERROR(AllocateOutput(c, 0, {n + 1}, &splits));
    int64_t* at = splits->flat<int64_t>().data();
    at[0] = 0;
    for (int64_t i = 0; i < n; ++i) {
      at[i + 1] = at[i] + counted[i].hashes.size();
    }
    TF_RETURN_IF_ERROR(AllocateOutput(c, 1, {at[n]}, &hashes));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 2, {at[n]}, &counts));
    int64_t* hash = hashes->flat<int64_t>().data();
    float* count = counts->flat<float>().data();
    for (const CountedTerms& terms : counted) {
      hash = std::copy(terms.hashes.begin(), terms.hashes.end(), hash);
      count = std::copy(terms.counts.begin(), terms.counts.end(), count);
    }
    return absl::OkStatus();
  }

  TermOptions options_;
};

TFXCLASS_CPU("CountTerms", CountTermsOp);

}  // namespace
}  // namespace tfxclass
