"""Kinds of operators whose time is that of their bytes: they multiply no matrices.

Element-wise work, copies and views, what is made from nothing, random numbers, reductions and scans, look-ups and
writes by index, sorts, pools, paddings and interpolation, normalisations, losses, the element-wise parts of recurrent
cells, quantisation, the steps of optimisers, and the backward kernels of all these. Each does a bounded number of
operations for a byte that it moves (a sort or a transcendental function some dozens).

The list is closed on purpose. A kind that stands neither here nor among the formulas of
:mod:`cost_models.arithmetic` is one of which nothing is known, and is called that.
"""

from __future__ import annotations

_KINDS = """
    abs absolute acos acosh adam_step adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool2d_backward adaptive_avg_pool3d adaptive_avg_pool3d_backward
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
    adaptive_max_pool3d_backward add add_relu addcdiv addcmul affine_grid_generator
    affine_grid_generator_backward airy_ai alias all alpha_dropout amax amin aminmax angle any
    arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere
    as_strided as_strided_scatter asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d
    avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward bartlett_window
    batch_norm batch_norm_backward batch_norm_no_update batch_norm_training
    batch_norm_with_update_functional bernoulli bessel_j0 bessel_j1 bessel_y0 bessel_y1
    binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits bincount
    binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    blackman_window block_diag broadcast_tensors bucketize cartesian_prod cat cauchy ceil celu
    chalf channel_shuffle chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v
    chebyshev_polynomial_w chunk_cat clamp clamp_max clamp_min clip col2im column_stack
    combinations complex conj conj_physical constant_pad_nd convert_weight_to_int4pack
    convert_weight_to_int4pack_for_cpu copy copysign cos cosh cosine_embedding_loss
    cosine_similarity count_nonzero cross cross_entropy_loss ctc_loss ctc_loss_backward
    cudnn_affine_grid_generator cudnn_affine_grid_generator_backward cudnn_batch_norm_backward
    cudnn_grid_sampler cudnn_grid_sampler_backward cummax cummaxmin_backward cummin cumprod
    cumprod_backward cumsum cumulative_trapezoid deg2rad dequantize detach diag diag_embed
    diagflat diagonal diagonal_backward diagonal_scatter diff digamma dirichlet_grad dist div
    dropout dropout_backward dstack dyn_quant_pack_4bit_weight elu elu_backward embedding
    embedding_backward embedding_bag embedding_bag_backward embedding_bag_dense_backward
    embedding_bag_per_sample_weights_backward embedding_dense_backward embedding_renorm empty
    empty_like empty_permuted empty_strided entr eq erf erfc erfcx erfinv exp exp2 expand expit
    expm1 exponential eye fake_quantize_per_channel_affine
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine
    fake_quantize_per_tensor_affine_cachemask
    fake_quantize_per_tensor_affine_cachemask_tensor_qparams feature_alpha_dropout feature_dropout
    fft_fftfreq fft_fftshift fft_ifftshift fft_rfftfreq fill fill_diagonal fix flip fliplr flipud
    float_power floor floor_divide fmax fmin fmod frac fractional_max_pool2d
    fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward frexp
    frobenius_norm full full_like fused_dropout fused_gru_cell fused_lstm_cell
    fused_moving_avg_obs_fq_helper_functional fused_rms_norm_backward gammainc gammaincc gammaln
    gather gather_backward gcd ge gelu gelu_backward geometric ger glu glu_backward
    glu_backward_jvp glu_jvp gradient greater greater_equal grid_sampler grid_sampler_2d
    grid_sampler_2d_backward grid_sampler_2d_cpu_fallback grid_sampler_2d_cpu_fallback_backward
    grid_sampler_3d grid_sampler_3d_backward group_norm group_norm_backward gt hamming_window
    hann_window hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward heaviside hermite_polynomial_h
    hermite_polynomial_he hinge_embedding_loss histc histogram hstack huber_loss
    huber_loss_backward hypot i0 i0e i1 i1e igamma igammac im2col index index_add index_copy
    index_fill index_put index_put_impl index_reduce index_select index_select_backward
    instance_norm int_repr is_all_true is_any_true isclose isfinite isin isinf isnan isneginf
    isposinf isreal kaiser_window kl_div kron kthvalue l1_loss laguerre_polynomial_l layer_norm
    layer_norm_backward lcm ldexp le leaky_relu leaky_relu_backward legendre_polynomial_p lerp
    less less_equal lgamma lift lift_fresh linalg__powsum linalg_cross linalg_vander linalg_vecdot
    linalg_vector_norm linspace log log10 log1p log2 log_ndtr log_normal log_sigmoid
    log_sigmoid_backward log_sigmoid_forward log_softmax log_softmax_backward logaddexp logaddexp2
    logcumsumexp logical_and logical_not logical_or logical_xor logit logit_backward logspace
    logsumexp lshift lt lu_unpack margin_ranking_loss masked_fill masked_scale masked_scatter
    masked_scatter_backward masked_select masked_select_backward masked_softmax
    masked_softmax_backward max max_pool1d max_pool2d max_pool2d_backward max_pool3d
    max_pool3d_backward max_unpool2d max_unpool3d maximum mean median meshgrid min minimum mish
    mish_backward mkldnn_adaptive_avg_pool2d mkldnn_adaptive_avg_pool2d_backward mkldnn_max_pool2d
    mkldnn_max_pool2d_backward mkldnn_max_pool3d mkldnn_max_pool3d_backward mode
    modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 mse_loss
    mse_loss_backward msort mul multi_margin_loss multi_margin_loss_backward multigammaln
    multilabel_margin_loss multilabel_margin_loss_backward multilabel_margin_loss_forward
    multinomial mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow ndtr ndtri ne neg
    neg_view negative new_empty new_empty_strided new_full new_ones new_zeros nextafter nll_loss
    nll_loss2d nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward
    nll_loss_nd nonzero nonzero_numpy nonzero_static norm norm_except_dim normal normal_functional
    not_equal one_hot ones ones_like outer pad pad_circular pad_sequence pairwise_distance permute
    pin_memory pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma pow prelu
    prelu_kernel_backward prod put quantile quantize_per_channel quantize_per_tensor
    quantize_per_tensor_dynamic rad2deg rand rand_like randint randint_like randn randn_like
    random randperm range reciprocal reflection_pad1d reflection_pad1d_backward reflection_pad2d
    reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward relu relu6 remainder
    renorm repeat repeat_interleave replication_pad1d replication_pad1d_backward replication_pad2d
    replication_pad2d_backward replication_pad3d replication_pad3d_backward reshape reshape_alias
    rms_norm roll rot90 round row_stack rrelu rrelu_with_noise_backward
    rrelu_with_noise_functional rshift rsqrt rsub safe_softmax sample_dirichlet scalar_tensor
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 scatter scatter_add scatter_reduce
    searchsorted segment_reduce select select_backward select_scatter selu sgd_step sgn
    shape_as_tensor shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sigmoid sigmoid_backward sign
    signbit silu silu_backward sin sinc sinh slice slice_backward slice_scatter smooth_l1_loss
    smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softmax softmax_backward
    softplus softplus_backward softshrink softshrink_backward sort spherical_bessel_j0 split
    split_with_sizes sqrt square squeeze stack standard_gamma standard_gamma_grad std std_mean sub
    sum sum_to_size t take take_along_dim tan tanh tanh_backward thnn_fused_gru_cell_backward
    thnn_fused_lstm_cell_backward thnn_fused_lstm_cell_backward_impl threshold threshold_backward
    tile to_cpu to_dense to_dense_backward to_sparse topk trace trace_backward
    transform_bias_rescale_qkv transpose trapezoid trapz tril tril_indices triplet_margin_loss
    triu triu_indices trunc type_as unbind unfold unfold_backward uniform unique unique2
    unique_consecutive unique_dim unique_dim_consecutive unsafe_chunk unsafe_index
    unsafe_index_put unsafe_masked_index unsafe_masked_index_put_accumulate unsafe_split
    unsafe_split_with_sizes unsafe_view unsqueeze upsample_bicubic2d upsample_bicubic2d_aa
    upsample_bicubic2d_aa_backward upsample_bicubic2d_backward upsample_bilinear2d
    upsample_bilinear2d_aa upsample_bilinear2d_aa_backward upsample_bilinear2d_backward
    upsample_lanczos2d_aa upsample_lanczos2d_aa_backward upsample_linear1d
    upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
    upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward
    upsample_nearest_exact1d upsample_nearest_exact1d_backward upsample_nearest_exact2d
    upsample_nearest_exact2d_backward upsample_nearest_exact3d upsample_nearest_exact3d_backward
    upsample_trilinear3d upsample_trilinear3d_backward value_selecting_reduction_backward vander
    var var_mean view view_as_complex view_as_real vstack weight_norm
    weight_norm_differentiable_backward weight_norm_interface weight_norm_interface_backward where
    xlog1py xlogy zero zeros zeros_like zeta
"""
STREAMING = frozenset(_KINDS.split())
"""Canonical kinds (:mod:`cost_models.canonical`)."""


def streams(kind: str) -> bool:
    """Whether a kind is known to stream; an operation on each of a list does if the single one does."""
    return kind in STREAMING or kind.removeprefix("foreach_") in STREAMING
