"""Operations below the layers: plain TensorFlow, fused and compiled forms, random numbers."""
