// By which law the active classes are filled up.
#ifndef TFXCLASS_CORE_FILL_LAW_H_
#define TFXCLASS_CORE_FILL_LAW_H_

namespace tfxclass {

enum class FillLaw { kUniform, kLogUniform, kFrequency };

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_FILL_LAW_H_
